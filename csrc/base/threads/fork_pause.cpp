#include "base/threads/fork_pause.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace gear::base {
namespace {

struct Registry {
  std::mutex mutex;  // held over a fork
  std::vector<ForkPause*> pauses;
};

// Never destroyed: a process may be forked while it ends.
Registry& registry() {
  static Registry* const instance = std::make_unique<Registry>().release();
  return *instance;
}

}  // namespace

ForkPause::ForkPause(std::function<void()> pause, std::function<void(Side)> resume)
    : pause_(std::move(pause)), resume_(std::move(resume)) {
  static const int error = pthread_atfork([] { pause_all(); }, [] { resume_all(Side::kParent); },
                                          [] { resume_all(Side::kChild); });
  if (error != 0) {
    throw OutOfMemory(cat("[threads] cannot register fork handlers: ", errno_text(error)));
  }
  const std::lock_guard guard(registry().mutex);
  registry().pauses.push_back(this);
}

ForkPause::~ForkPause() {
  const std::lock_guard guard(registry().mutex);
  std::erase(registry().pauses, this);
}

void ForkPause::pause_all() {
  registry().mutex.lock();
  for (const ForkPause* one : registry().pauses) {
    one->pause_();
  }
}

void ForkPause::resume_all(Side side) {
  for (const ForkPause* one : registry().pauses) {
    one->resume_(side);
  }
  registry().mutex.unlock();
}

}  // namespace gear::base

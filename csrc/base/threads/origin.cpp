#include "base/threads/origin.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "base/errors.h"

namespace gear::base {
namespace {

std::atomic<uint64_t> g_forks{0};  // between the first process and this one

}  // namespace

Origin::Origin() : forks_(g_forks.load(std::memory_order_relaxed)), pid_(::getpid()) {
  static const int error =
      pthread_atfork(nullptr, nullptr, [] { g_forks.fetch_add(1, std::memory_order_relaxed); });
  if (error != 0) {
    throw OutOfMemory(cat("[threads] cannot register a fork handler: ", errno_text(error)));
  }
}

bool Origin::forked() const noexcept { return g_forks.load(std::memory_order_relaxed) != forks_; }

std::string Origin::text() const {
  return cat("was made by process ", pid_, ", and this is process ", ::getpid(),
             ", forked from it");
}

}  // namespace gear::base

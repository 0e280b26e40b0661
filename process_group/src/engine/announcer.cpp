#include "engine/announcer.h"

#include <iterator>
#include <utility>

#include "base/threads/signals_blocked.h"

namespace gear::process_group {

void Announcer::add(Calls ended) {
  {
    const std::lock_guard guard(mutex_);
    ended_.insert(ended_.end(), std::make_move_iterator(ended.begin()),
                  std::make_move_iterator(ended.end()));
    if (!thread_ && !stopped_) {
      const base::SignalsBlocked signals;
      thread_.emplace([this] { run(); });
    }
  }
  changed_.notify_one();
}

void Announcer::run() {
  for (;;) {
    Calls ended;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || !ended_.empty(); });
      if (ended_.empty()) {
        return;
      }
      ended.swap(ended_);
    }
    announce(std::move(ended));
  }
}

void Announcer::announce(Calls ended) {
  for (const auto& call : ended) {
    if (call->on_done) {
      call->on_done();
      call->on_done = nullptr;
    }
  }
}

void Announcer::stop() {
  std::optional<std::thread> thread;
  {
    const std::lock_guard guard(mutex_);
    stopped_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread) {
    thread->join();
  }
}

}  // namespace gear::process_group

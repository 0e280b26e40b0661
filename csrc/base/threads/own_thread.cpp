#include "base/threads/own_thread.h"

#include <pthread.h>

#include <utility>

#include "base/threads/signals_blocked.h"

namespace gear::base {

OwnThread::OwnThread(const char* name, std::function<void()> run) {
  const SignalsBlocked signals;
  thread_ = std::thread(std::move(run));
  // Fails for one that has ended already, or has too long a name: nothing that a caller could mend.
  static_cast<void>(pthread_setname_np(thread_.native_handle(), name));
}

OwnThread& OwnThread::operator=(OwnThread&& other) noexcept {
  join();
  origin_ = other.origin_;
  thread_ = std::move(other.thread_);
  return *this;
}

void OwnThread::join() noexcept {
  if (!thread_.joinable()) {
    return;
  }
  if (origin_.forked()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

}  // namespace gear::base

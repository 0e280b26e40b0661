#pragma once

#include <signal.h>

namespace gear::base {

/// Blocks all signals while it lives, so that threads made meanwhile inherit that: signals belong
/// to the program's own threads, which may wait for one by sigwait.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    blocked_ = pthread_sigmask(SIG_SETMASK, &all, &former_) == 0;
  }
  ~SignalsBlocked() {
    if (blocked_) {
      pthread_sigmask(SIG_SETMASK, &former_, nullptr);
    }
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t former_;
  bool blocked_;
};

}  // namespace gear::base

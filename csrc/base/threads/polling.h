#pragma once

#include <chrono>
#include <thread>

#include "base/threads/blocking.h"
#include "base/threads/interrupt.h"

namespace gear::base {

/// The pauses of a wait for what tells nobody that it is done, a GPU above all:
///
///     for (Polling polling(kPoll); !done(); polling.pause()) {}
class Polling {
 public:
  explicit Polling(std::chrono::microseconds length)
      : length_(length), next_look_(std::chrono::steady_clock::now() + kInterruptEvery) {}

  /// One, as Blocking says; every kInterruptEvery it asks the host program behind it, which may
  /// throw. Without a lock that the host's code may want.
  void pause() {
    {
      const Blocking waiting;
      std::this_thread::sleep_for(length_);
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look_) {
      check_interrupt();
      next_look_ = now + kInterruptEvery;
    }
  }

 private:
  std::chrono::microseconds length_;
  std::chrono::steady_clock::time_point next_look_;
};

}  // namespace gear::base

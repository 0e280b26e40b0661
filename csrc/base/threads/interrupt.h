#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

namespace gear::base {

/// A wait that may be long looks this often whether it is to end.
inline constexpr std::chrono::milliseconds kInterruptEvery{100};

/// What a host program does when it is asked in the middle of a wait: it throws what is to end the
/// wait, as Python does after Ctrl-C. Nothing by default.
inline std::atomic<void (*)()> interrupt_check{nullptr};

/// Thrown in a thread that is to end, through all that it does: no error, and for nobody to see.
struct Stopped {};

/// While it lives, the waits of its thread, and check_stopped(), throw Stopped once `stop` is true.
/// `stop` is the caller's and outlives it; one a thread.
class StopsWaits {
 public:
  explicit StopsWaits(const std::atomic<bool>& stop) { current = &stop; }
  ~StopsWaits() { current = nullptr; }
  StopsWaits(const StopsWaits&) = delete;
  StopsWaits& operator=(const StopsWaits&) = delete;

  static bool now() { return current != nullptr && current->load(std::memory_order_acquire); }

 private:
  static inline thread_local const std::atomic<bool>* current = nullptr;
};

/// While it lives, the waits of its thread call `look` every kInterruptEvery: it waits for nobody,
/// and what it throws ends the wait. `look` is the caller's and outlives it. The last one counts.
class LooksInWaits {
 public:
  explicit LooksInWaits(const std::function<void()>& look)
      : before_(std::exchange(current, &look)) {}
  ~LooksInWaits() { current = before_; }
  LooksInWaits(const LooksInWaits&) = delete;
  LooksInWaits& operator=(const LooksInWaits&) = delete;

  static void now() {
    if (current != nullptr) {
      (*current)();
    }
  }

 private:
  static inline thread_local const std::function<void()>* current = nullptr;
  const std::function<void()>* before_;
};

/// For a thread that waits for nothing but works long. Costs nothing.
inline void check_stopped() {
  if (StopsWaits::now()) {
    throw Stopped();
  }
}

/// Asks the host program, behind check_stopped() and the thread's LooksInWaits. Without a lock that
/// the host's code may want.
inline void check_interrupt() {
  check_stopped();
  LooksInWaits::now();
  if (const auto check = interrupt_check.load(std::memory_order_acquire)) {
    check();
  }
}

}  // namespace gear::base

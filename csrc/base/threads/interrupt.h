#pragma once

#include <atomic>
#include <chrono>

namespace gear::base {

/// A wait that may be long looks this often whether it is to end.
inline constexpr std::chrono::milliseconds kInterruptEvery{100};

/// What a host program does when it is asked in the middle of a wait: it throws what is to end the
/// wait, as Python does after Ctrl-C. Nothing by default.
inline std::atomic<void (*)()> interrupt_check{nullptr};

/// Asks it. Without a lock that the host's code may want.
inline void check_interrupt() {
  if (const auto check = interrupt_check.load(std::memory_order_acquire)) {
    check();
  }
}

}  // namespace gear::base

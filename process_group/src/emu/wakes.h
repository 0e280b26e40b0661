#pragma once

#include <atomic>
#include <chrono>

#include "ranks/clock.h"

namespace gear::emu {

using process_group::Time;

/// When to wake for a time. Who sleeps until a time wakes late, by 30 us where cores stay awake and
/// by 500 where they fall asleep or are a virtual machine's; so one wakes before it and spins. By
/// how much, the last sleeps say. Any thread may call.
class Wakes {
 public:
  using Duration = Time::duration;
  static constexpr Duration kLeast = std::chrono::microseconds(50);
  static constexpr Duration kMost =
      std::chrono::milliseconds(1);  // that a core is kept from others

  Time before(Time time) const noexcept { return time - early_.load(std::memory_order_relaxed); }
  /// Who slept until `asked` woke at `present`.
  void woke(Time asked, Time present) noexcept;

 private:
  std::atomic<Duration> early_{kLeast};
};

}  // namespace gear::emu

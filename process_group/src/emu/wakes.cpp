#include "emu/wakes.h"

#include <algorithm>

namespace gear::emu {

void Wakes::woke(Time asked, Time present) noexcept {
  // A quarter more than the latest, of which a sixteenth is forgotten each time: nine of ten wake
  // in time. What two threads learn at once, one of them forgets.
  const Duration early = early_.load(std::memory_order_relaxed);
  const Duration learned = std::max((present - asked) * 5 / 4, early - early / 16);
  early_.store(std::clamp(learned, kLeast, kMost), std::memory_order_relaxed);
}

}  // namespace gear::emu

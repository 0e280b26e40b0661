#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "transport/shared/shared_layout.h"

namespace gear::transport {

// Waiting for a rank's round between processes, the short waits without the kernel.

/// Stores `round`, and wakes who sleeps on it.
void publish(Member& member, uint32_t round) noexcept;

/// Whether `member` has published `round`; rounds may wrap.
inline bool has_published(const Member& member, uint32_t round) noexcept {
  return static_cast<int32_t>(member.round.load(std::memory_order_acquire) - round) >= 0;
}

/// Looks for `round` for some tens of microseconds, giving the CPU to others in between; from the
/// start if there are fewer CPUs than ranks (`crowded`). False: it is not there yet.
bool spin_for(const Member& member, uint32_t round, bool crowded) noexcept;

/// Sleeps until `round` is published, at most for `limit`. It may return early.
void sleep_for(Member& member, uint32_t round, std::chrono::microseconds limit) noexcept;

}  // namespace gear::transport

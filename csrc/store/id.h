#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace gear::store {

/// Names one stored step (or, with the episode bit, the episode that begins there) for as long as
/// its page is not reused:
///
///   bit   63 62        61..50   49..32       31..0
///        | 0 | episode | owner | generation | slot = page * page_steps + row |
///
/// `generation` counts the uses of the page modulo 2^18, so an id of an evicted step is recognised
/// as stale until its page has been reused 262144 times.
struct StepId {
  static constexpr unsigned kSlotBits = 32;
  static constexpr unsigned kGenerationBits = 18;
  static constexpr unsigned kOwnerBits = 12;
  static constexpr uint32_t kMostOwners = 1U << kOwnerBits;
  static constexpr uint32_t kGenerationMask = (1U << kGenerationBits) - 1;

  uint32_t slot;
  uint32_t generation;
  uint32_t owner;
  bool episode;

  GEAR_HD int64_t pack() const {
    return static_cast<int64_t>(uint64_t{slot} | uint64_t{generation} << kSlotBits |
                                uint64_t{owner} << (kSlotBits + kGenerationBits) |
                                uint64_t{episode} << 62);
  }

  GEAR_HD static StepId unpack(int64_t id) {
    const auto bits = static_cast<uint64_t>(id);
    return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> kSlotBits) & kGenerationMask,
            static_cast<uint32_t>(bits >> (kSlotBits + kGenerationBits)) & ((1U << kOwnerBits) - 1),
            (bits >> 62 & 1) != 0};
  }
};

}  // namespace gear::store

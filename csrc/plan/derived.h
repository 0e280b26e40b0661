#pragma once

#include <cstdint>

#include "plan/batch.h"
#include "store/episode.h"

namespace gear::plan {

/// What derived outputs need to know of the steps that a window takes from an episode: the number
/// of the first, whether the last of them is the last of an episode that has ended, and whether
/// that one terminated.
struct StandingFacts {
  uint64_t first = 0;
  bool ends = false;
  bool terminates = false;

  GEAR_HD uint64_t pack() const { return first << 2 | uint64_t{terminates} << 1 | uint64_t{ends}; }
  GEAR_HD static StandingFacts unpack(uint64_t word) {
    return {word >> 2, (word & 1) != 0, (word >> 1 & 1) != 0};
  }
};

GEAR_HD inline StandingFacts standing_of(const Extent& extent, uint64_t episode_end,
                                         store::EpisodeState state) {
  const bool ends = extent.count > 0 && extent.first + extent.count == episode_end &&
                    state != store::EpisodeState::kOpen;
  return {extent.first, ends, ends && state == store::EpisodeState::kTerminated};
}

/// Writes row `row` of `data`: of step i of the `count` that there are, or where i is not below it,
/// zero.
GEAR_HD inline void put_derived(Derived kind, const StandingFacts& standing, uint32_t i,
                                uint32_t count, std::byte* data, uint64_t row) {
  const bool there = i < count;
  if (kind == Derived::kStepIndex) {
    reinterpret_cast<int64_t*>(data)[row] = there ? static_cast<int64_t>(standing.first + i) : 0;
    return;
  }
  const bool last = kind == Derived::kTerminated ? standing.terminates : standing.ends;
  reinterpret_cast<bool*>(data)[row] = there && i + 1 == count && last;
}

/// Writes the rows of an item of `batch`, whose window has `count` steps from row `place` on: zeros
/// around them, or where it is packed only the steps, from where its cu_seqlens say.
void write_derived(const BatchLayout::DerivedOutput& derived, const StandingFacts& standing,
                   uint32_t place, uint32_t count, uint64_t item, const Batch& batch);

}  // namespace gear::plan

#pragma once

#include <cstdint>

// Updates of priorities in the memory of a GPU.

namespace gear::store {

/// One priority on its way into a mirror.
struct alignas(16) UpdateEntry {
  int64_t id;  ///< negative: of a call that was refused
  float priority;
  uint32_t order;  ///< of the entries that name a step, the one of the highest order counts
};

/// Entries that are applied together, in the order of their segments and, inside of one, of
/// UpdateEntry::order: those of an UpdateIntake, or what several ranks have written into memory of
/// this GPU, a segment each.
struct UpdateSegments {
  /// Before a segment that says how many entries it has, as many entries' room for that number.
  static constexpr uint64_t kHeader = 4;

  const UpdateEntry* entries;  ///< entry i of segment s: at first + s * stride + i, masked
  uint64_t mask;
  uint64_t first;
  uint64_t stride;
  uint32_t num_segments;
  uint32_t most;    ///< entries of a segment
  uint32_t orders;  ///< UpdateEntry::order lies below
  bool counted;     ///< a uint64_t, kHeader entries before the first, says how many there are; else
                    ///< there are `most`
};

}  // namespace gear::store

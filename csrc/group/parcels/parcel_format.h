#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gear::group {

// The bytes of a parcel, one after the other without gaps, n = items; each array begins at a
// multiple of its elements' alignment, since the parcel begins at one of 8:
//
//   ParcelHeader
//   ids          i64 [n]
//   probabilities f32 [n]
//   places       u32 [n], ascending
//   per window:  ParcelPiece [n]
//   per window that derived outputs have: u64 [n], StandingFacts::pack()
//   mapped only, per window: u32 number of runs, u32 [parts] first run of each part of the items,
//                ParcelRun [of them], item by item
//   the rows that travel with it: all before them together are a multiple of 8 bytes

struct ParcelHeader {
  uint32_t items;
  uint32_t mapped;      ///< 0 or 1
  uint32_t part_items;  ///< of the ParcelParts
  uint32_t zero;        ///< no indeterminate bytes on the wire
  uint64_t rows_at;     ///< in the owner's arena, or one of these
};

inline constexpr uint64_t kRowsApart = UINT64_MAX;       ///< in pages, or by a way of the movers
inline constexpr uint64_t kRowsBehind = UINT64_MAX - 1;  ///< with the parcel

/// Of one item: so many steps, from row `place` of its window on.
struct ParcelPiece {
  uint32_t count;
  uint32_t place;
};

/// Rows [row, row + count) of a page.
struct ParcelRun {
  uint32_t page;
  uint32_t row;
  uint32_t count;
};

/// The items of a parcel, divided in parts that the pool shares, the last one smaller.
struct ParcelParts {
  uint64_t items = 0;
  uint64_t part_items = 1;

  size_t size() const { return (items + part_items - 1) / part_items; }
  uint64_t begin(size_t part) const { return part * part_items; }
  uint64_t end(size_t part) const { return std::min(begin(part) + part_items, items); }
};

/// How much there is of one window in some of the items.
struct ParcelSums {
  uint64_t runs = 0;
  uint64_t steps = 0;
  uint64_t short_items = 0;  ///< of which some steps are missing
};

/// From what part p has, at [p + 1], to what lies before each part; in all: the last.
inline void add_up(std::span<ParcelSums> sums) {
  for (size_t p = 1; p < sums.size(); ++p) {
    sums[p].runs += sums[p - 1].runs;
    sums[p].steps += sums[p - 1].steps;
    sums[p].short_items += sums[p - 1].short_items;
  }
}

}  // namespace gear::group

#pragma once

#include <cstdint>

namespace gear::group {

// The bytes of a parcel, one after the other without gaps, n = items:
//
//   ParcelHeader
//   ids          i64 [n]
//   probabilities f32 [n]
//   places       u32 [n]
//   per window:  ParcelPiece [n]
//   per window that derived outputs have: u64 [n], Standing::pack()
//   mapped only, per window: u32 number of runs, u32 [parts] first run of each part of the items,
//                ParcelRun [of them], item by item

struct ParcelHeader {
  uint32_t items;
  uint32_t mapped;      ///< 0 or 1
  uint32_t part_items;  ///< the items are read in parts of so many, the last one smaller
  uint32_t zero;
};

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

/// Items [begin, end) of a part.
struct ParcelPart {
  ParcelPart(size_t number, uint64_t part_items, uint64_t items)
      : begin(number * part_items), end(begin + part_items < items ? begin + part_items : items) {}

  uint64_t begin;
  uint64_t end;
};

}  // namespace gear::group

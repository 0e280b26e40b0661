#pragma once

#include <cstdint>

namespace gear::collect {

// The bytes of a parcel, one after the other without gaps, n = items:
//
//   ParcelHeader
//   ids          i64 [n]
//   probabilities f32 [n]
//   places       u32 [n]
//   per window:  ParcelPiece [n]
//   mapped only, per window: u32 number of runs, ParcelRun [of them], item by item

struct ParcelHeader {
  uint32_t items;
  uint32_t mapped;  // 0 or 1
};

// Of one item: so many steps, from row `place` of its window on.
struct ParcelPiece {
  uint32_t count;
  uint32_t place;
};

// Rows [row, row + count) of a page.
struct ParcelRun {
  uint32_t page;
  uint32_t row;
  uint32_t count;
};

}  // namespace gear::collect

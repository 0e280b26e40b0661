#pragma once

#include <cstdint>
#include <vector>

#include "plan/batch.h"
#include "store/page_layout.h"

namespace gear::plan {

/// How the rows of a packed parcel lie: window by window, column by column, one step behind the
/// other; outputs of a window that show the same column share its rows. Every column of a window
/// begins at a multiple of 16; rows are as they are stored, conversions are the consumer's.
struct PackedRows {
  std::vector<uint64_t> rows;    ///< by window
  std::vector<uint64_t> offset;  ///< by output: of the first row of its window
  uint64_t bytes = 0;

  PackedRows() = default;  ///< of no rows
  PackedRows(const BatchLayout& layout, const store::PageLayout& pages,
             std::vector<uint64_t> rows_of_windows);
};

}  // namespace gear::plan

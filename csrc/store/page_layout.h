#pragma once

#include <cstdint>
#include <vector>

#include "store/schema.h"

namespace gear::store {

/// Where things lie inside a page (PAX): column after column, `page_steps` rows each.
///
///   page p of the region, from byte p * page_bytes:
///     [obs row 0 | obs row 1 | ... ][pad][action row 0 | ... ][pad][reward ...][pad]
///      ^ column_offset[0]                 ^ column_offset[1]        ^ multiples of kColumnAlign
///
/// Address of a value = base + page * page_bytes + column_offset[c] + row * step_bytes[c].
struct PageLayout {
  static constexpr uint64_t kColumnAlign = 16;  ///< one 16-byte vector load
  static constexpr uint64_t kPageAlign = 64;    ///< one cache line
  static constexpr uint64_t kDefaultPageSteps = 16;
  static constexpr uint64_t kMaxPageSteps = 32768;

  /// Throws InvalidArgument when page_steps is outside [1, kMaxPageSteps] or a column of a page
  /// would reach 4 GiB.
  PageLayout(const Schema& schema, uint64_t steps_per_page);

  uint64_t page_steps;
  uint64_t page_bytes;
  std::vector<uint64_t> column_offset;
  std::vector<uint64_t> step_bytes;

  uint64_t offset(uint64_t page, size_t column, uint64_t row) const {
    return page * page_bytes + column_offset[column] + row * step_bytes[column];
  }
};

}  // namespace gear::store

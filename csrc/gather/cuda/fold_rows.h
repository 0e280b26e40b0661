#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cuda/cuda.h"
#include "base/numbers/divider.h"

namespace gear::gather {

/// One Fold of one batch: the planned rows of each item, added up as fold.h says.
struct FoldJob {
  const std::byte* source;  ///< row 0 of page 0 in the column; aligned to 4
  uint64_t page_bytes;
  base::Divider page_steps;
  const uint32_t* slots;      ///< [items, n] (kNone: missing), packed: [sum of lengths]
  const int32_t* cu_seqlens;  ///< [items + 1]; null: padded
  float* sums;                ///< [items, row_values]
  uint32_t items;
  uint32_t n;
  uint32_t row_values;
  float factor;
};

/// Launches it on `stream`, one thread an element of `sums`, or fewer with more each where
/// `most_blocks` thread blocks are too few; nothing where there are none. The device is current. No
/// allocation, no synchronisation; may be captured into a graph.
void launch_fold(const FoldJob& job, uint32_t most_blocks, cudaStream_t stream);

}  // namespace gear::gather

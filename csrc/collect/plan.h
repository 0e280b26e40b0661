#pragma once

#include <vector>

#include "collect/batch.h"
#include "select/selection.h"

namespace gear::collect {

// A selection turned into byte runs: copy `bytes` from `source` (an offset into the shard's
// region) to `target` (an offset into the batch's block), or fill with zeros (source == kZeros).
// A run never leaves a page.
struct Run {
  static constexpr uint64_t kZeros = ~uint64_t{0};
  uint64_t source;
  uint64_t target;
  uint64_t bytes;
};

struct Plan {
  std::vector<Run> runs;
  uint64_t copied_bytes = 0;

  void clear() {
    runs.clear();
    copied_bytes = 0;
  }
};

// Fills in everything of `batch` but the data (ids, probabilities, weights, lengths, masks or
// cu_seqlens, items, rows) and appends the runs that move the data. Arithmetic only: the caller
// holds the shard's lock, so that no page changes meanwhile.
void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan);

}  // namespace gear::collect

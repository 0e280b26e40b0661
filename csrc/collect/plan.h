#pragma once

#include <memory>
#include <span>

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

// The runs of a batch. Its memory is kept between batches.
class Plan {
 public:
  // Makes room for `count` runs and forgets those there were.
  void reset(uint64_t count);

  void copy(uint64_t source, uint64_t target, uint64_t bytes) {
    runs_[size_++] = {source, target, bytes};
    copied_bytes_ += bytes;
  }
  void zero(uint64_t target, uint64_t bytes) { runs_[size_++] = {Run::kZeros, target, bytes}; }

  std::span<const Run> runs() const { return {runs_.get(), size_}; }
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  std::unique_ptr<Run[]> runs_;
  uint64_t capacity_ = 0;
  uint64_t size_ = 0;
  uint64_t copied_bytes_ = 0;
};

// Fills in everything of `batch` but the data (ids, probabilities, weights, lengths, masks or
// cu_seqlens, items, rows) and makes the runs that move the data. Arithmetic only: the caller
// holds the shard's lock, so that no page changes meanwhile.
void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan);

}  // namespace gear::collect

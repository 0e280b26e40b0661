#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/batch.h"
#include "select/selection.h"
#include "store/page_layout.h"

namespace gear::plan {

/// A selection turned into runs of rows: rows [row, row + count) of a page go to rows
/// [target, target + count) of every output of a window. Times the rows' bytes, these are the byte
/// runs that a gather moves. A run never leaves a page; page kNone stands for zeros.
struct Run {
  uint32_t page;
  uint32_t row;
  uint32_t count;
  uint32_t target;
};

/// The runs of a batch, window by window. Its memory is kept between batches.
class Plan {
 public:
  /// Forgets what there was.
  void reset();
  /// The runs added from here on are the next window's: at most `most_runs`.
  void begin_window(uint64_t most_runs);
  void add(Run run) { runs_[size_++] = run; }
  /// In their place: room for as many as begin_window() was told, of which the first `count` are
  /// filled then.
  Run* room() { return runs_.get() + size_; }
  void fill(uint64_t count) { size_ += count; }

  size_t num_windows() const { return begins_.size(); }
  std::span<const Run> runs(size_t window) const {
    const uint64_t end = window + 1 < begins_.size() ? begins_[window + 1] : size_;
    return {runs_.get() + begins_[window], end - begins_[window]};
  }
  uint64_t num_runs() const { return size_; }

 private:
  std::unique_ptr<Run[]> runs_;
  uint64_t capacity_ = 0;
  uint64_t size_ = 0;
  std::vector<uint64_t> begins_;  ///< first run of each window
};

/// Fills in everything of `batch` but the data of columns (ids, probabilities, weights, lengths,
/// masks or cu_seqlens, derived outputs, items, rows, bytes) and makes the runs that move the data.
/// Arithmetic only: the caller holds the shard's lock, so that no page changes meanwhile.
void make_plan(const store::Index& index, const store::PageLayout& pages,
               const select::Selection& selection, Batch& batch, Plan& plan);

}  // namespace gear::plan

#pragma once

#include <functional>
#include <vector>

#include "base/cuda/cuda.h"

namespace gear::deliver {

/// The launches that make one batch, captured once for each block that they fill, and replayed as
/// one: a third of the host's time. Blocks are few, and an address stands for a block, whose
/// contents are laid out alike in all.
class BatchGraphs {
 public:
  /// For the first `most` blocks, on streams of `device`; what fills others is launched piece by
  /// piece.
  BatchGraphs(size_t most, int device) : most_(most), device_(device) {}
  ~BatchGraphs();
  BatchGraphs(const BatchGraphs&) = delete;
  BatchGraphs& operator=(const BatchGraphs&) = delete;

  /// Puts on `stream` what launches() puts there, which is always the same for a block.
  void run(const void* block, cudaStream_t stream, const std::function<void()>& launches);

 private:
  struct Entry {
    const void* block;
    cudaGraphExec_t graph;  ///< null until the second use
  };

  size_t most_;
  int device_;
  std::vector<Entry> entries_;
};

}  // namespace gear::deliver

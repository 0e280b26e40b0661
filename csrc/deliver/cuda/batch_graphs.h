#pragma once

#include <functional>
#include <map>
#include <memory>

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

  /// Puts on `stream` what launches() puts there, which is always the same for a block.
  void run(const void* block, cudaStream_t stream, const std::function<void()>& launches);

 private:
  using Graph = std::unique_ptr<CUgraphExec_st, base::FreeOn<cudaGraphExecDestroy>>;

  size_t most_;
  int device_;
  std::map<const void*, Graph> graphs_;  ///< by block; null until its second use
};

}  // namespace gear::deliver

#pragma once

#include <map>
#include <memory>

#include "base/cuda/cuda.h"

namespace gear::deliver {

/// The launches that make one batch, captured once for each block that they fill, and replayed as
/// one: a third of the host's time. Blocks are few, and an address stands for a block, whose
/// contents are laid out alike in all.
///
///     BatchGraphs::Use use(graphs, block, stream);
///     if (!use.replayed()) { ... }      // launches on the stream, always the same for a block
///     use.end();
///
///     use of a block    launches    end() puts on the stream
///     the first         at once
///     the second        captured    the graph
///     further ones      none        the graph
class BatchGraphs {
  using Graph = std::unique_ptr<CUgraphExec_st, base::FreeOn<cudaGraphExecDestroy>>;

 public:
  /// For the first `most` blocks, on streams of `device`; what fills others is launched piece by
  /// piece.
  BatchGraphs(size_t most, int device) : most_(most), device_(device) {}

  /// One filling of a block. Where it goes without end(), a capture comes to nothing, and the block
  /// stands where it stood: a stream that is left capturing is lost to all who use it.
  class Use {
   public:
    /// Other threads may do meanwhile what a capture does not allow.
    Use(BatchGraphs& graphs, const void* block, cudaStream_t stream);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    bool replayed() const { return graph_ != nullptr && !capturing_; }
    void end();

   private:
    using Captured = std::unique_ptr<CUgraph_st, base::FreeOn<cudaGraphDestroy>>;

    cudaError_t end_capture(Captured& captured);

    BatchGraphs& graphs_;
    const void* block_;
    cudaStream_t stream_;
    Graph* graph_ = nullptr;  ///< of a block that was filled before
    bool capturing_ = false;
  };

 private:
  size_t most_;
  int device_;
  std::map<const void*, Graph> graphs_;  ///< by block; null until its second use
};

}  // namespace gear::deliver

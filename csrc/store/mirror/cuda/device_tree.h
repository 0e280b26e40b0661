#pragma once

#include "base/cuda/cuda.h"
#include "store/mirror/device_view.h"

namespace gear::store {

/// The memory of one DeviceTree; its kernels' launchers.
class TreeMemory {
 public:
  /// All weights zero, as of `stream`. Throws OutOfMemory.
  TreeMemory(uint64_t num_leaves, cudaStream_t stream, int device);

  const DeviceTree& tree() const { return tree_; }

  /// Sums the leaves, which were written one by one, into the levels above.
  void sum_levels(cudaStream_t stream) const;
  /// Minima of the leaves as they are: see least_node(). Throws OutOfMemory.
  base::DeviceArray<uint64_t> least_levels(cudaStream_t stream) const;

 private:
  base::DeviceArray<uint64_t> nodes_;
  DeviceTree tree_{};
};

}  // namespace gear::store

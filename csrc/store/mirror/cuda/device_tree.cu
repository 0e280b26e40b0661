#include <algorithm>

#include "base/errors.h"
#include "store/mirror/cuda/device_tree.cuh"
#include "store/mirror/cuda/device_tree.h"

namespace gear::store {
namespace {

constexpr uint64_t kWarps = 8;  // of a block

uint64_t padded(uint64_t count) {
  return (count + DeviceTree::kFanout - 1) / DeviceTree::kFanout * DeviceTree::kFanout;
}

uint64_t num_nodes(uint64_t num_leaves) {
  uint64_t total = padded(num_leaves);
  for (uint64_t count = num_leaves; count > 1;) {
    count = padded(count) / DeviceTree::kFanout;
    total += padded(count);
  }
  return total;
}

// One warp a node.
__global__ void sum_children(const uint64_t* children, uint64_t* nodes, uint64_t count) {
  const uint64_t node = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (node >= count) {
    return;
  }
  const uint64_t sum =
      warp_sum(children[node * DeviceTree::kFanout + static_cast<unsigned>(lane_id())]);
  if (lane_id() == 0) {
    nodes[node] = sum;
  }
}

__global__ void take_least(const __grid_constant__ DeviceTree tree, uint64_t* least, int level) {
  const uint64_t node = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (node < tree.counts[level]) {
    warp_refresh_least(tree, least, level, {static_cast<int64_t>(node)});
  }
}

}  // namespace

TreeMemory::TreeMemory(uint64_t num_leaves, cudaStream_t stream, int device)
    : nodes_(num_nodes(num_leaves), device) {
  const base::OnDevice current(device);
  GEAR_CUDA_TRY(cudaMemsetAsync(nodes_.get(), 0, nodes_.bytes(), stream));
  uint64_t* begin = nodes_.get();
  for (uint64_t count = num_leaves;; count = padded(count) / DeviceTree::kFanout) {
    GEAR_CHECK(tree_.num_levels < DeviceTree::kMaxLevels);
    tree_.levels[tree_.num_levels] = begin;
    tree_.counts[tree_.num_levels] = count;
    ++tree_.num_levels;
    begin += padded(count);
    if (count == 1) {
      break;
    }
  }
  GEAR_CHECK(begin == nodes_.get() + nodes_.size());
}

void TreeMemory::sum_levels(cudaStream_t stream) const {
  for (int level = 1; level < tree_.num_levels; ++level) {
    const uint64_t count = tree_.counts[level];
    const auto blocks = static_cast<unsigned>((count + kWarps - 1) / kWarps);
    sum_children<<<blocks, kWarps * kWarpSize, 0, stream>>>(tree_.levels[level - 1],
                                                            tree_.levels[level], count);
    GEAR_CUDA_TRY(cudaGetLastError());
  }
}

base::DeviceArray<uint64_t> TreeMemory::least_levels(cudaStream_t stream) const {
  const uint64_t above = nodes_.size() - padded(tree_.counts[0]);
  base::DeviceArray<uint64_t> least(std::max(above, uint64_t{1}), nodes_.device());
  GEAR_CUDA_TRY(cudaMemsetAsync(least.get(), 0xff, least.bytes(), stream));  // of no weight
  for (int level = 1; level < tree_.num_levels; ++level) {
    const auto blocks = static_cast<unsigned>((tree_.counts[level] + kWarps - 1) / kWarps);
    take_least<<<blocks, kWarps * kWarpSize, 0, stream>>>(tree_, least.get(), level);
    GEAR_CUDA_TRY(cudaGetLastError());
  }
  return least;
}

}  // namespace gear::store

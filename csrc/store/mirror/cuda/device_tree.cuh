#pragma once

#include "store/mirror/device_view.h"

// Search and update of a DeviceTree by warps. Every lane of the warp takes part in every call.

namespace gear::store {

constexpr unsigned kWholeWarp = 0xffffffffU;
constexpr int kWarpSize = 32;
static_assert(DeviceTree::kFanout == kWarpSize, "a lane reads one child");

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % kWarpSize; }

__device__ inline void add_to(uint64_t* node, uint64_t delta) {
  static_assert(sizeof(unsigned long long) == sizeof(uint64_t));
  atomicAdd(reinterpret_cast<unsigned long long*>(node), static_cast<unsigned long long>(delta));
}

/// Of the lanes up to this one.
template <class Sum>
__device__ inline Sum warp_running_sum(Sum value) {
  for (int step = 1; step < kWarpSize; step *= 2) {
    const Sum below = __shfl_up_sync(kWholeWarp, value, static_cast<unsigned>(step));
    if (lane_id() >= step) {
      value += below;
    }
  }
  return value;
}

template <class Sum>
__device__ inline Sum warp_sum(Sum value) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kWholeWarp, value, step);
  }
  return value;
}

struct TreeHit {
  uint64_t leaf;
  uint64_t remainder;  ///< in [0, weight)
  uint64_t weight;     ///< of the leaf
  uint64_t total;      ///< of the tree
};

/// The leaf on which `target_of(total)`, in [0, total), falls when the weights are laid end to end
/// in leaf order. One load of 256 bytes a level. Of an empty tree: some leaf, weight 0.
template <class TargetOf>
__device__ inline TreeHit warp_find(const DeviceTree& tree, TargetOf target_of) {
  const int root = tree.num_levels - 2;  // the level whose nodes are the root's children
  if (root < 0) {
    const uint64_t total = tree.levels[0][0];
    return {0, target_of(total), total, total};
  }
  TreeHit hit{};
  for (int level = root; level >= 0; --level) {
    const uint64_t child = __ldg(tree.levels[level] + hit.leaf * DeviceTree::kFanout +
                                 static_cast<unsigned>(lane_id()));
    const uint64_t sum = warp_running_sum(child);
    if (level == root) {
      hit.total = __shfl_sync(kWholeWarp, sum, kWarpSize - 1);
      hit.remainder = target_of(hit.total);
    }
    const unsigned beyond = __ballot_sync(kWholeWarp, sum > hit.remainder);
    const int chosen = beyond == 0 ? 0 : __ffs(static_cast<int>(beyond)) - 1;
    hit.remainder -= __shfl_sync(kWholeWarp, sum - child, chosen);
    hit.weight = __shfl_sync(kWholeWarp, child, chosen);
    hit.leaf = hit.leaf * DeviceTree::kFanout + static_cast<unsigned>(chosen);
  }
  return hit;
}

/// Sets one leaf, that no other warp of the kernel sets; the same arguments in every lane.
__device__ inline void warp_set(const DeviceTree& tree, uint64_t leaf, uint64_t weight) {
  const uint64_t before = tree.levels[0][leaf];
  __syncwarp();
  const int level = lane_id();
  if (weight == before || level >= tree.num_levels) {
    return;
  }
  add_to(tree.levels[level] + (leaf >> (DeviceTree::kFanoutBits * level)), weight - before);
}

/// Adds what 32 neighbouring leaves, from `first` on, gained (modulo 2^64), one a lane, to the
/// levels above them; the leaves themselves are the caller's.
__device__ inline void warp_add_run(const DeviceTree& tree, uint64_t first, uint64_t gained) {
  // They lie in at most two groups: half of the warp carries up the sum of each.
  const uint64_t group = first >> DeviceTree::kFanoutBits;
  const uint64_t leaf = first + static_cast<unsigned>(lane_id());
  const bool in_second = (leaf >> DeviceTree::kFanoutBits) != group;
  const uint64_t first_gained = warp_sum(in_second ? uint64_t{0} : gained);
  const uint64_t second_gained = warp_sum(in_second ? gained : uint64_t{0});
  const bool second = lane_id() >= kWarpSize / 2;
  const int level = lane_id() % (kWarpSize / 2);
  const uint64_t sum = second ? second_gained : first_gained;
  if (level == 0 || level >= tree.num_levels || sum == 0) {
    return;
  }
  const uint64_t node = (group + (second ? 1 : 0)) >> (DeviceTree::kFanoutBits * (level - 1));
  add_to(tree.levels[level] + node, sum);
}

/// Adds what scattered leaves gained (modulo 2^64), one a lane, to the levels above them; the
/// leaves themselves are the caller's.
__device__ inline void warp_add_scattered(const DeviceTree& tree, uint64_t leaf, uint64_t gained) {
  const int top = tree.num_levels - 1;
  for (int level = 1; level < top; ++level) {
    leaf >>= DeviceTree::kFanoutBits;
    if (gained != 0) {
      add_to(tree.levels[level] + leaf, gained);
    }
  }
  const uint64_t sum = warp_sum(gained);
  if (top > 0 && lane_id() == 0 && sum != 0) {
    add_to(tree.levels[top], sum);
  }
}

}  // namespace gear::store

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

/// The same, one a thread, by whole blocks. Additions to one sector of memory take turns, of an
/// H200 some 5 ns each: those to the levels of few nodes are summed in the block first.
__device__ inline void block_add_scattered(const DeviceTree& tree, uint64_t leaf, uint64_t gained) {
  constexpr unsigned kFew = DeviceTree::kFanout * DeviceTree::kFanout;
  __shared__ uint32_t low[kFew];  // two words a node: memory of a block adds no larger ones
  __shared__ uint32_t high[kFew];
  __shared__ uint64_t of_groups[DeviceTree::kFanout];
  const int top = tree.num_levels - 1;
  int level = 1;
  for (; level <= top && tree.counts[level] > kFew; ++level) {
    if (gained != 0) {
      add_to(tree.levels[level] + (leaf >> (DeviceTree::kFanoutBits * level)), gained);
    }
  }
  if (level > top) {
    return;
  }
  const auto count = static_cast<unsigned>(tree.counts[level]);
  __syncthreads();  // the tree before is done
  for (unsigned node = threadIdx.x; node < count; node += blockDim.x) {
    low[node] = high[node] = 0;
  }
  __syncthreads();
  if (gained != 0) {
    const uint64_t node = leaf >> (DeviceTree::kFanoutBits * level);
    const auto more = static_cast<uint32_t>(gained);
    const uint32_t carry = atomicAdd(low + node, more) + more < more ? 1 : 0;
    atomicAdd(high + node, static_cast<uint32_t>(gained >> 32) + carry);
  }
  __syncthreads();
  const auto lane = static_cast<unsigned>(lane_id());
  for (unsigned first = threadIdx.x - lane; first < count; first += blockDim.x) {
    const unsigned node = first + lane;
    const uint64_t sum = node < count ? uint64_t{high[node]} << 32 | low[node] : 0;
    if (sum != 0) {
      add_to(tree.levels[level] + node, sum);
    }
    const uint64_t of_group = warp_sum(sum);
    if (lane == 0) {
      of_groups[first / kWarpSize] = of_group;
    }
  }
  __syncthreads();
  if (threadIdx.x >= kWarpSize || level == top) {
    return;
  }
  const uint64_t sum = lane < (count + kWarpSize - 1) / kWarpSize ? of_groups[lane] : 0;
  if (sum != 0) {
    add_to(tree.levels[level + 1] + lane, sum);
  }
  const uint64_t all = warp_sum(sum);
  if (level + 1 < top && lane == 0 && all != 0) {
    add_to(tree.levels[top], all);
  }
}

// Beside a tree of weights, where somebody asks for it, stand minima: for each node above the
// leaves the least weight above 0 below it, less 1, so that 0 is the largest. As
// store::LeastTree, and kept level by level behind what sets leaves.

/// That of a node of level 1 or above.
__device__ inline uint64_t* least_node(const DeviceTree& tree, uint64_t* least, int level,
                                       uint64_t node) {
  return least + (tree.levels[level] - tree.levels[1]) + node;
}

/// Takes those of kNodes nodes anew from the level below, whose loads are under way together; of a
/// negative number none.
template <int kNodes = 1>
__device__ inline void warp_refresh_least(const DeviceTree& tree, uint64_t* least, int level,
                                          const int64_t (&nodes)[kNodes]) {
  uint64_t values[kNodes];
#pragma unroll
  for (int k = 0; k < kNodes; ++k) {
    const uint64_t child =
        static_cast<uint64_t>(nodes[k] < 0 ? 0 : nodes[k]) * DeviceTree::kFanout +
        static_cast<unsigned>(lane_id());
    values[k] = level == 1 ? __ldcg(tree.levels[0] + child) - 1
                           : __ldcg(least_node(tree, least, level - 1, child));
  }
#pragma unroll
  for (int k = 0; k < kNodes; ++k) {
    for (int step = kWarpSize / 2; step > 0; step /= 2) {
      const uint64_t other = __shfl_xor_sync(kWholeWarp, values[k], step);
      values[k] = other < values[k] ? other : values[k];
    }
    if (lane_id() == 0 && nodes[k] >= 0) {
      *least_node(tree, least, level, static_cast<uint64_t>(nodes[k])) = values[k];
    }
  }
}

/// The least weight above 0 of all; 0: there is none.
__device__ inline uint64_t least_weight(const DeviceTree& tree, uint64_t* least) {
  const int root = tree.num_levels - 1;
  return root == 0 ? tree.levels[0][0] : *least_node(tree, least, root, 0) + 1;
}

}  // namespace gear::store

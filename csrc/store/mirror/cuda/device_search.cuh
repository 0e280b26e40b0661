#pragma once

#include "store/mirror/cuda/device_tree.cuh"

// Search of a DeviceTree for many targets at once, by all threads of a kernel.

namespace gear::store {

constexpr unsigned kSearchBlock = 256;   ///< threads of a block that searches
constexpr uint64_t kManyTargets = 8192;  ///< from here on a thread a target, below a warp a target
constexpr unsigned kMostSearchBlocks = 1056;  ///< of many targets: 8 a multiprocessor of an H100

inline bool is_many(uint64_t targets) { return targets > kManyTargets; }

inline unsigned search_blocks(uint64_t targets) {
  const uint64_t each = is_many(targets) ? kSearchBlock : kSearchBlock / kWarpSize;
  const uint64_t blocks = (targets + each - 1) / each;
  return static_cast<unsigned>(is_many(targets) && blocks > kMostSearchBlocks ? kMostSearchBlocks
                                                                              : blocks);
}

/// The upper levels of a tree as running sums in shared memory: of the lowest level that is short
/// enough. Every block makes its own.
struct SearchTop {
  static constexpr unsigned kNodes = 2048;
  static constexpr unsigned kEach = kNodes / kSearchBlock;

  uint64_t sums[kNodes];
  uint64_t warps[kSearchBlock / kWarpSize];

  /// By all threads of the block. Returns the level.
  __device__ int make(const DeviceTree& tree) {
    int level = 0;
    while (tree.counts[level] > kNodes) {
      ++level;
    }
    uint64_t running[kEach];
    uint64_t sum = 0;
    for (unsigned k = 0; k < kEach; ++k) {
      const unsigned node = threadIdx.x * kEach + k;
      sum += node < tree.counts[level] ? __ldg(tree.levels[level] + node) : 0;
      running[k] = sum;
    }
    const uint64_t through = warp_running_sum(sum);
    const unsigned warp = threadIdx.x / kWarpSize;
    if (lane_id() == kWarpSize - 1) {
      warps[warp] = through;
    }
    __syncthreads();
    uint64_t before = through - sum;
    for (unsigned w = 0; w < warp; ++w) {
      before += warps[w];
    }
    for (unsigned k = 0; k < kEach; ++k) {
      sums[threadIdx.x * kEach + k] = before + running[k];
    }
    __syncthreads();
    return level;
  }

  __device__ uint64_t total() const { return sums[kNodes - 1]; }

  /// The node on which `target` falls; `target` becomes what is left of it.
  __device__ unsigned find(uint64_t& target) const {
    unsigned node = 0;
    for (unsigned step = kNodes / 2; step > 0; step /= 2) {
      if (sums[node + step - 1] <= target) {
        node += step;
      }
    }
    if (node > 0) {
      target -= sums[node - 1];
    }
    return node;
  }
};

// How the lanes of a warp share the children of four nodes: 8 lanes (a team) read the 32 children
// of one, each lane its part of four neighbours.
constexpr unsigned kTeamLanes = 8;
constexpr unsigned kTeams = kWarpSize / kTeamLanes;
constexpr unsigned kPart = static_cast<unsigned>(DeviceTree::kFanout) / kTeamLanes;

/// Where a target falls among the children of a node, `part` of which this lane reads, `wanted` the
/// target; by a whole team. True in the one lane whose part holds it: there `child` becomes the
/// child, and `wanted` what is left in it. (Of an empty node: in none.)
__device__ inline bool find_in_part(const uint64_t* children, unsigned part, unsigned& child,
                                    uint64_t& wanted) {
  const auto* four = reinterpret_cast<const ulonglong2*>(children + part * kPart);
  const ulonglong2 low = __ldg(four);
  const ulonglong2 high = __ldg(four + 1);
  const uint64_t one = low.x;  // running sums of the part
  const uint64_t two = one + low.y;
  const uint64_t three = two + high.x;
  const uint64_t all = three + high.y;
  uint64_t through = all;  // running sum of the parts
  for (unsigned step = 1; step < kTeamLanes; step *= 2) {
    const uint64_t below = __shfl_up_sync(kWholeWarp, through, step, kTeamLanes);
    if (part >= step) {
      through += below;
    }
  }
  // Sums stay below 2^63: a target that lies before this part wraps to a number above all of them.
  const uint64_t here = wanted - (through - all);
  const unsigned passed = (here >= one) + (here >= two) + (here >= three);
  const uint64_t before = passed == 0 ? 0 : passed == 1 ? one : passed == 2 ? two : three;
  child = part * kPart + passed;
  wanted = here - before;
  return here < all;
}

/// Takes the target of every lane from its node to the child that it falls on. The lanes help each
/// other, in 8 rounds of 4 targets:
///
///     round r    targets of the lanes 4r, 4r + 1, 4r + 2, 4r + 3
///                each looked for by team 0 (lanes 0 to 7), team 1, team 2, team 3
///
/// So a lane looks for the target of lane 4r + team in round r, and learns of its own, which is
/// that of team lane % 4, in round lane / 4.
__device__ inline void warp_descend(const uint64_t* children, unsigned& node, uint64_t& target) {
  const auto lane = static_cast<unsigned>(lane_id());
  const unsigned team = lane / kTeamLanes;
  const unsigned part = lane % kTeamLanes;
  const unsigned own_round = lane / kTeams;
  const unsigned own_team_begin = lane % kTeams * kTeamLanes;  // first lane of it
  unsigned next_node = 0;
  uint64_t next_target = 0;
#pragma unroll 4
  for (unsigned round = 0; round < kTeamLanes; ++round) {
    const int owner = static_cast<int>(round * kTeams + team);
    const unsigned parent = __shfl_sync(kWholeWarp, node, owner);
    uint64_t left = __shfl_sync(kWholeWarp, target, owner);
    unsigned child = 0;
    const bool found =
        find_in_part(children + uint64_t{parent} * DeviceTree::kFanout, part, child, left);
    const unsigned finders = __ballot_sync(kWholeWarp, found) >> own_team_begin & 0xffU;
    const int at = __ffs(static_cast<int>(finders));
    const int finder = static_cast<int>(own_team_begin) + (at > 0 ? at - 1 : 0);
    child = __shfl_sync(kWholeWarp, child, finder);
    left = __shfl_sync(kWholeWarp, left, finder);
    if (round == own_round) {
      next_node = node * static_cast<unsigned>(DeviceTree::kFanout) + child;
      next_target = left;
    }
  }
  node = next_node;
  target = next_target;
}

/// Calls deliver(item, hit) once for every item in [0, count), in one thread of the kernel, with
/// the hit of target_of(item, total). All threads of search_blocks(count) blocks of kSearchBlock
/// threads take part; kMany is is_many(count). Trees of fewer than 2^32 leaves.
template <bool kMany, class TargetOf, class Deliver>
__device__ inline void search(const DeviceTree& tree, uint64_t count, TargetOf target_of,
                              Deliver deliver) {
  if constexpr (!kMany) {
    const uint64_t item =
        uint64_t{blockIdx.x} * (kSearchBlock / kWarpSize) + threadIdx.x / kWarpSize;
    if (item >= count) {
      return;
    }
    const TreeHit hit = warp_find(tree, [&](uint64_t total) { return target_of(item, total); });
    if (lane_id() == 0) {
      deliver(item, hit);
    }
  } else {
    __shared__ SearchTop top;
    const int top_level = top.make(tree);
    const uint64_t total = top.total();
    for (uint64_t first = uint64_t{blockIdx.x} * kSearchBlock; first < count;
         first += uint64_t{gridDim.x} * kSearchBlock) {
      const uint64_t item = first + threadIdx.x;
      uint64_t target = item < count ? target_of(item, total) : 0;
      unsigned node = top.find(target);
      if (node >= tree.counts[top_level]) {
        node = 0;  // of an empty tree
      }
      for (int level = top_level - 1; level >= 0; --level) {
        warp_descend(tree.levels[level], node, target);
      }
      if (item < count) {
        deliver(item, TreeHit{node, target, __ldg(tree.levels[0] + node), total});
      }
    }
  }
}

}  // namespace gear::store

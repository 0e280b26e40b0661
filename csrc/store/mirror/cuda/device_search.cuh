#pragma once

#include <algorithm>
#include <type_traits>

#include "base/cuda/cuda.h"
#include "base/host_device.h"
#include "store/mirror/cuda/device_tree.cuh"

// Search of a DeviceTree for many targets at once, by all threads of a kernel. `Sum` is what holds
// every sum of the tree: uint32_t where the total is known to fit, which halves the work.

namespace gear::store {

constexpr uint64_t kManyTargets = 8192;  ///< from here on a thread a target, below a warp a target
constexpr unsigned kSearchBlock = 256;   ///< of a block with a warp a target
constexpr unsigned kMostSearchThreads = 1024;  ///< of a block; every kernel that searches says so
constexpr unsigned kSearchMultiprocessors = 132;  ///< of an H100: as many blocks, for many targets

inline bool is_many(uint64_t targets) { return targets > kManyTargets; }

/// Nodes of the level that a block keeps in shared memory: 64 KiB of narrow sums, the most that
/// every GPU has, 32 KiB of wide ones; and no more than its threads load in about a microsecond.
template <class Sum>
constexpr uint64_t kMostTopNodes = sizeof(Sum) == 4 ? 16384 : 4096;
template <class Sum>
constexpr uint64_t kTopNodesEach = 64 / sizeof(Sum);  ///< of a thread

/// The lowest level of a tree that is short enough, as a binary search tree of running sums in
/// shared memory. Every block makes its own:
///
///   sums[0]     all nodes
///   sums[1]     the first half
///   sums[2, 3]  the first quarter, the first three
///   sums[4..7]  the first eighth, the first three, five, seven      ...
///
/// What the lanes of a warp look at in one step lies side by side, and so in different banks; in an
/// array of running sums it lies a power of two apart, in the same bank.
template <class Sum>
struct SearchTop {
  Sum* sums;
  unsigned nodes;  ///< of a full binary tree; those behind the level's are empty
  int level;

  /// Of blocks of `threads` threads.
  GEAR_HD SearchTop(const DeviceTree& tree, unsigned threads, Sum* memory)
      : sums(memory), nodes(kPair), level(0) {
    const uint64_t loaded = threads * kTopNodesEach<Sum>;
    const uint64_t most = loaded < kMostTopNodes<Sum> ? loaded : kMostTopNodes<Sum>;
    while (tree.counts[level] > most) {
      ++level;
    }
    while (nodes < tree.counts[level]) {
      nodes *= 2;
    }
  }

  /// By all threads of the block, whose number is a power of two.
  __device__ void make(const DeviceTree& tree) const {
    const unsigned warp = threadIdx.x / kWarpSize;
    const unsigned lane = static_cast<unsigned>(lane_id());
    const unsigned part = max(nodes / (blockDim.x / kWarpSize), kPair);  // of a warp
    const unsigned begin = warp * part;
    const unsigned end = min(begin + part, nodes);
    const auto last = min(end, static_cast<unsigned>(tree.counts[level]));  // zeros pad a level
    Sum before = 0;
    for (unsigned first = begin; first < end; first += kAhead * kPair) {
      ulonglong2 pair[kAhead];
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k) {
        const unsigned node = first + k * kPair + 2 * lane;
        pair[k] = node < last
                      ? __ldg(reinterpret_cast<const ulonglong2*>(tree.levels[level] + node))
                      : ulonglong2{0, 0};
      }
#pragma unroll
      for (unsigned k = 0; k < kAhead; ++k) {
        if (first + k * kPair < end) {
          const unsigned node = first + k * kPair + 2 * lane;
          const Sum second = static_cast<Sum>(pair[k].y);
          const Sum through = before + warp_running_sum(static_cast<Sum>(pair[k].x) + second);
          sums[place(node + 1)] = through - second;
          sums[place(node + 2)] = through;
          before = __shfl_sync(kWholeWarp, through, kWarpSize - 1);
        }
      }
    }
    __syncthreads();
    // So far each warp counted from its own part on.
    before = warp_sum(lane < warp && begin < nodes ? sums[place((lane + 1) * part)] : Sum{0});
    __syncthreads();
    if (warp > 0) {
      for (unsigned node = begin + lane; node < end; node += kWarpSize) {
        sums[place(node + 1)] += before;
      }
    }
    __syncthreads();
  }

  __device__ Sum total() const { return sums[0]; }

  /// The node on which `target` falls; `target` becomes what is left of it.
  __device__ unsigned find(Sum& target) const {
    const auto* bytes = reinterpret_cast<const std::byte*>(sums);
    unsigned at = sizeof(Sum);  // place 1, in bytes: one instruction less a step
    Sum before = 0;
#pragma unroll 2
    for (unsigned step = nodes; step > 1; step /= 2) {
      const Sum sum = *reinterpret_cast<const Sum*>(bytes + at);
      const bool beyond = sum <= target;
      before = beyond ? sum : before;
      at = 2 * at + (beyond ? sizeof(Sum) : 0);
    }
    target -= before;
    return at / sizeof(Sum) - nodes;
  }

 private:
  static constexpr unsigned kPair = 2 * kWarpSize;  // that a warp loads at a time
  static constexpr unsigned kAhead = 4;             // loads under way together

  // Of the sum of the first `count` nodes, count > 0.
  __device__ unsigned place(unsigned count) const {
    return count == nodes ? 0 : (nodes + count) >> __ffs(static_cast<int>(count));
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
template <class Sum>
__device__ inline bool find_in_part(const uint64_t* children, unsigned part, unsigned& child,
                                    Sum& wanted) {
  const auto* four = reinterpret_cast<const ulonglong2*>(children + part * kPart);
  const ulonglong2 low = __ldg(four);
  const ulonglong2 high = __ldg(four + 1);
  const Sum one = static_cast<Sum>(low.x);  // running sums of the part
  const Sum two = one + static_cast<Sum>(low.y);
  const Sum three = two + static_cast<Sum>(high.x);
  const Sum all = three + static_cast<Sum>(high.y);
  Sum through = all;  // running sum of the parts
  for (unsigned step = 1; step < kTeamLanes; step *= 2) {
    const Sum below = __shfl_up_sync(kWholeWarp, through, step, kTeamLanes);
    if (part >= step) {
      through += below;
    }
  }
  // A target that lies before this part wraps to what is not below the part's sum: both sums
  // together fit.
  const Sum here = wanted - (through - all);
  const unsigned passed = (here >= one) + (here >= two) + (here >= three);
  const Sum before = passed == 0 ? 0 : passed == 1 ? one : passed == 2 ? two : three;
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
template <class Sum>
__device__ inline void warp_descend(const uint64_t* children, unsigned& node, Sum& target) {
  const auto lane = static_cast<unsigned>(lane_id());
  const unsigned team = lane / kTeamLanes;
  const unsigned part = lane % kTeamLanes;
  const unsigned own_round = lane / kTeams;
  const unsigned own_team_begin = lane % kTeams * kTeamLanes;  // first lane of it
  unsigned next_node = 0;
  Sum next_target = 0;
#pragma unroll 4
  for (unsigned round = 0; round < kTeamLanes; ++round) {
    const int owner = static_cast<int>(round * kTeams + team);
    const unsigned parent = __shfl_sync(kWholeWarp, node, owner);
    Sum left = __shfl_sync(kWholeWarp, target, owner);
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
/// the hit of target_of(item, total), where total is a Sum or an uint64_t. Trees of fewer than 2^32
/// leaves. In kernels that launch_search launches: `count` its targets, kMany which of the two.
template <class Sum, bool kMany, class TargetOf, class Deliver>
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
    extern __shared__ uint4 search_memory[];
    const SearchTop<Sum> top(tree, blockDim.x, reinterpret_cast<Sum*>(search_memory));
    top.make(tree);
    const Sum total = top.total();
    for (uint64_t first = uint64_t{blockIdx.x} * blockDim.x; first < count;
         first += uint64_t{gridDim.x} * blockDim.x) {
      const uint64_t item = first + threadIdx.x;
      Sum target = item < count ? static_cast<Sum>(target_of(item, total)) : 0;
      unsigned node = top.find(target);
      if (node >= tree.counts[top.level]) {
        node = 0;  // of an empty tree
      }
      for (int level = top.level - 1; level >= 0; --level) {
        warp_descend(tree.levels[level], node, target);
      }
      if (item < count) {
        deliver(item, TreeHit{node, target, __ldg(tree.levels[0] + node), total});
      }
    }
  }
}

/// Launches a kernel that calls search() for `targets` targets of `tree`: `few` has kMany false,
/// `many` has it true, both take `parameters`. The device is current. May be captured.
template <class Sum, class... Parameters>
void launch_search(void (*few)(Parameters...), void (*many)(Parameters...), const DeviceTree& tree,
                   uint64_t targets, cudaStream_t stream,
                   std::type_identity_t<Parameters>... parameters) {
  if (!is_many(targets)) {
    constexpr uint64_t kEach = kSearchBlock / kWarpSize;
    const auto blocks = static_cast<unsigned>((targets + kEach - 1) / kEach);
    few<<<blocks, kSearchBlock, 0, stream>>>(parameters...);
    GEAR_CUDA_TRY(cudaGetLastError());
    return;
  }
  // As few blocks as keep all multiprocessors busy: each makes a top of its own.
  unsigned threads = kSearchBlock;
  while (threads < kMostSearchThreads && targets > uint64_t{threads} * kSearchMultiprocessors) {
    threads *= 2;
  }
  const auto blocks = static_cast<unsigned>(
      std::min<uint64_t>(kSearchMultiprocessors, (targets + threads - 1) / threads));
  const size_t bytes = SearchTop<Sum>(tree, threads, nullptr).nodes * sizeof(Sum);
  GEAR_CUDA_TRY(cudaFuncSetAttribute(many, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(kMostTopNodes<Sum> * sizeof(Sum))));
  many<<<blocks, threads, bytes, stream>>>(parameters...);
  GEAR_CUDA_TRY(cudaGetLastError());
}

}  // namespace gear::store

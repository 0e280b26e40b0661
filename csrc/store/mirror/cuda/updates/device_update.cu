#include "store/mirror/cuda/updates/device_update.h"

#include <algorithm>

#include "base/cuda/following.cuh"
#include "base/cuda/last_block.cuh"
#include "base/errors.h"
#include "base/numbers/divider.h"
#include "store/index/update_check.h"
#include "store/mirror/cuda/device_scale.cuh"

namespace gear::store {
namespace {

constexpr unsigned kBlock = 512;
constexpr unsigned kWarps = kBlock / kWarpSize;

// Updates, as their kernels see them.
//
// A claim says which update names a step (or an episode) last: 1 + its number, 0 between two
// launches. All raise the claims; then the thread of that update, and no other, writes the step and
// resets the claim. The others may read the claim before or after that reset, it makes no
// difference: it holds either the number of another update or 0, and neither is theirs.
struct Updates {
  UpdateSegments segments;
  base::Divider by_most;
  uint32_t* step_claims;     // by slot
  uint32_t* episode_claims;  // by episode
  base::Divider by_page_steps;
};

// What an update names, if that is stored.
struct Target {
  bool stored;
  bool episode;
  uint32_t slot;
  uint32_t page;
  uint32_t row;
  uint32_t episode_number;
};

// The update of one thread.
struct Named {
  bool given;
  float priority;
  uint32_t claim;
  Target target;
};

__device__ Target target_of(const DeviceTables& tables, const Updates& updates, int64_t packed) {
  const StepId id = StepId::unpack(packed);
  const uint32_t number = updates.by_page_steps.divide(id.slot);
  const uint32_t row = updates.by_page_steps.remainder(id.slot, number);
  const Page page = tables.pages[number];
  return {is_stored(id, row, page), id.episode, id.slot, number, row, page.episode};
}

// The update of a thread, as it was taken in; false: it has none.
__device__ bool entry_of(const Updates& updates, uint32_t thread, UpdateEntry& entry,
                         uint32_t& segment) {
  const UpdateSegments& segments = updates.segments;
  segment = updates.by_most.divide(thread);
  const uint32_t i = updates.by_most.remainder(thread, segment);
  if (segment >= segments.num_segments) {
    return false;
  }
  const uint64_t first = segments.first + segment * segments.stride;
  entry = segments.entries[(first + i) & segments.mask];
  if (segments.counted) {
    const UpdateEntry* header = segments.entries + first - UpdateSegments::kHeader;
    if (i >= *reinterpret_cast<const uint64_t*>(header)) {
      return false;
    }
  }
  return entry.id >= 0;
}

__device__ Named look_up(const DeviceTables& tables, const Updates& updates, uint32_t thread) {
  UpdateEntry entry{};
  uint32_t segment = 0;
  if (!entry_of(updates, thread, entry, segment)) {
    return {};
  }
  return {true, entry.priority, 1 + segment * updates.segments.orders + entry.order,
          target_of(tables, updates, entry.id)};
}

__device__ uint32_t* claim_of(const Updates& updates, const Target& target) {
  return target.episode ? updates.episode_claims + target.episode_number
                        : updates.step_claims + target.slot;
}

// Priorities are 0 or more: their order is that of their bits. A look comes first: nearly none is
// the largest, and atomics of all warps on one word take turns.
__device__ void raise_largest(float* largest, float priority) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    priority = fmaxf(priority, __shfl_xor_sync(kWholeWarp, priority, step));
  }
  if (lane_id() == 0 && priority > __ldcg(largest)) {
    atomicMax(reinterpret_cast<unsigned*>(largest), __float_as_uint(priority));
  }
}

// By whole warps. The largest priority is known then, before any is set.
__device__ void claim(const DeviceTables& tables, const Updates& updates, const Named& named) {
  const bool step = named.target.stored && !named.target.episode;
  const float priority = named.target.stored ? fabsf(named.priority) : 0.0F;
  raise_largest(&tables.scalars->max_priority[tables.largest], step ? priority : 0.0F);
  raise_largest(&tables.scalars->max_weight, step ? 0.0F : priority);
  if (named.target.stored) {
    atomicMax(claim_of(updates, named.target), named.claim);
  }
}

// Whether the update is the last of its target, whose claim is then reset.
__device__ bool take_claim(const Updates& updates, const Named& named) {
  uint32_t* claim = claim_of(updates, named.target);
  if (__ldcg(claim) != named.claim) {  // not from the L1 cache, which atomics pass by
    return false;
  }
  *claim = 0;
  return true;
}

__device__ void count_warp(bool counts, unsigned long long* counter) {
  const unsigned counted = __ballot_sync(kWholeWarp, counts);
  if (lane_id() == 0 && counted != 0) {
    atomicAdd(counter, static_cast<unsigned>(__popc(counted)));
  }
}

// Weighs the targets of a block anew in every tree: of the steps that it may draw, what saturates
// is counted, and those that are `last` are set.
__device__ void weigh_block(const DeviceTables& tables, const Target& target, float priority,
                            bool step, bool last) {
  for (int k = 0; k < tables.num_weights; ++k) {
    const DeviceTables::Weights& weights = tables.weights[k];
    uint64_t gained = 0;
    bool saturated = false;
    if (step && has_step(tables.steps[weights.steps].words, tables.words_per_page, target.page,
                         target.row)) {
      const uint64_t after = fixed_weight(fabsf(priority), *weights.scale, saturated);
      if (last) {
        uint64_t* leaf = weights.tree.levels[0] + target.slot;
        gained = after - __ldcg(leaf);
        *leaf = after;
      }
    }
    count_warp(saturated, &tables.scalars->saturated_weights);
    if (gridDim.x == 1) {
      warp_add_scattered(weights.tree, target.slot, gained);
    } else {
      block_add_scattered(weights.tree, target.slot, gained);
    }
  }
}

// By whole blocks: those threads that have no update of their own take part in sums.
__device__ void settle(const DeviceTables& tables, const Updates& updates, const Named& named) {
  const Target& target = named.target;
  const float priority = named.priority;
  const bool step = target.stored && !target.episode;
  count_warp(named.given && !target.stored, &tables.scalars->stale_updates);
  const bool last = target.stored && take_claim(updates, named);
  if (last && step) {
    tables.priorities[target.slot] = fabsf(priority);
  } else if (last) {
    tables.episode_weights[target.episode_number] = static_cast<double>(priority);
  }
  weigh_block(tables, target, priority, step, last);
}

__global__ void claim_updates(const __grid_constant__ DeviceTables tables,
                              const __grid_constant__ Updates updates) {
  base::follow();
  base::let_next_in();
  claim(tables, updates, look_up(tables, updates, blockIdx.x * kBlock + threadIdx.x));
}

__global__ void __launch_bounds__(kBlock) apply_updates(const __grid_constant__ DeviceTables tables,
                                                        const __grid_constant__ Updates updates) {
  base::follow();
  base::let_next_in();
  settle(tables, updates, look_up(tables, updates, blockIdx.x * kBlock + threadIdx.x));
  const float* largest = tables.scalars->max_priority + tables.largest;
  if (scales_may_move(tables, *largest) && base::is_last_block(&tables.scalars->blocks_done)) {
    follow_largest(tables, *largest);
  }
}

// Takes minima anew above what a block has updated: of steps, or of all nodes where those are
// fewer.
__device__ void refresh_least_of_few(const DeviceTables& tables, const Target& target) {
  constexpr int kAtOnce = 4;
  __shared__ uint32_t slots[kBlock];
  slots[threadIdx.x] = target.stored && !target.episode ? target.slot : kNone;
  const unsigned first = threadIdx.x / kWarpSize * kAtOnce;
  for (int level = 1; level < tables.weights[0].tree.num_levels; ++level) {
    __threadfence_block();
    __syncthreads();
    const uint64_t in_level = tables.weights[0].tree.counts[level];
    const bool by_node = in_level <= blockDim.x;
    const auto count = static_cast<unsigned>(by_node ? in_level : blockDim.x);
    for (unsigned i = first; i < count; i += blockDim.x / kWarpSize * kAtOnce) {
      int64_t nodes[kAtOnce];
      for (int k = 0; k < kAtOnce; ++k) {
        const unsigned at = i + static_cast<unsigned>(k);
        nodes[k] = -1;
        if (at < count && by_node) {
          nodes[k] = at;
        } else if (at < count && slots[at] != kNone) {
          nodes[k] = slots[at] >> (DeviceTree::kFanoutBits * level);
        }
      }
      refresh_least(tables, level, nodes);
    }
  }
}

// All at once, of so few that one block has them all.
__global__ void __launch_bounds__(kBlock)
    apply_few_updates(const __grid_constant__ DeviceTables tables,
                      const __grid_constant__ Updates updates, bool any_least) {
  base::follow();
  base::let_next_in();
  const Named named = look_up(tables, updates, threadIdx.x);
  claim(tables, updates, named);
  __syncthreads();
  settle(tables, updates, named);
  const float largest = __ldcg(tables.scalars->max_priority + tables.largest);
  if (scales_may_move(tables, largest)) {
    __syncthreads();
    follow_largest(tables, largest);
  }
  if (any_least) {
    refresh_least_of_few(tables, named.target);
  }
}

// Minima of one level above what was updated: a warp an update, or a node where there are fewer.
__global__ void refresh_least_of_many(const __grid_constant__ DeviceTables tables,
                                      const __grid_constant__ Updates updates, int level,
                                      bool by_node) {
  base::follow();
  base::let_next_in();
  const uint32_t warp = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  uint64_t node = warp;
  if (!by_node) {
    UpdateEntry entry{};
    uint32_t segment = 0;
    if (!entry_of(updates, warp, entry, segment)) {
      return;
    }
    node = StepId::unpack(entry.id).slot >> (DeviceTree::kFanoutBits * level);
  } else if (node >= tables.weights[0].tree.counts[level]) {
    return;
  }
  refresh_least(tables, level, {static_cast<int64_t>(node)});
}

}  // namespace

UpdateQueue::UpdateQueue(uint32_t owner, uint64_t num_slots, uint64_t num_episodes,
                         const base::Stream& stream)
    : stream_(stream),
      claims_(num_slots, stream.device()),
      episode_claims_(num_episodes, stream.device()),
      intake_(owner, {&num_slots, 1}, stream),
      staging_(kParts, stream.device()) {
  const base::OnDevice current(stream.device());
  GEAR_CUDA_TRY(cudaMemsetAsync(claims_.get(), 0, claims_.bytes(), stream_));
  GEAR_CUDA_TRY(cudaMemsetAsync(episode_claims_.get(), 0, episode_claims_.bytes(), stream_));
}

void UpdateQueue::enqueue(const int64_t* ids, const float* priorities, uint64_t count,
                          bool on_device, cudaStream_t made_on, const DeviceTables& tables) {
  if (count == 0) {
    return;
  }
  intake_.keep(ids, priorities, count, on_device, made_on);
  const auto most = static_cast<uint32_t>(count);
  launch({intake_.ring(), intake_.mask(), intake_.begin(), 0, 1, most, most, false}, tables);
  intake_.release(intake_.end());
}

void UpdateQueue::apply(const UpdateSegments& updates, const base::Stream& made_on,
                        const DeviceTables& tables) {
  GEAR_CHECK(uint64_t{updates.num_segments} * updates.orders < ~uint32_t{0});
  if (updates.most == 0) {
    return;
  }
  if (made_on.device() == stream_.device()) {
    GEAR_CHECK(static_cast<cudaStream_t>(made_on) == static_cast<cudaStream_t>(stream_));
    launch(updates, tables);
    return;
  }
  launch(copy(updates, made_on), tables);
  staging_.release(stream_);
}

// Of another GPU's memory.
UpdateSegments UpdateQueue::copy(const UpdateSegments& updates, const base::Stream& made_on) {
  GEAR_CHECK(updates.counted);
  const uint64_t stride = UpdateSegments::kHeader + updates.most;
  std::byte* const there =
      staging_.acquire_on_device(updates.num_segments * stride * sizeof(UpdateEntry), made_on);
  const base::OnDevice beside(made_on.device());
  for (uint64_t s = 0; s < updates.num_segments; ++s) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(
        there + s * stride * sizeof(UpdateEntry),
        updates.entries + updates.first + s * updates.stride - UpdateSegments::kHeader,
        stride * sizeof(UpdateEntry), cudaMemcpyDefault, made_on));
  }
  base::Event copied;
  copied.record(made_on);
  copied.make_wait(stream_);
  UpdateSegments here = updates;
  here.entries = reinterpret_cast<const UpdateEntry*>(there);
  here.first = UpdateSegments::kHeader;
  here.stride = stride;
  return here;
}

void UpdateQueue::launch(const UpdateSegments& segments, const DeviceTables& tables) {
  const Updates updates{segments, base::Divider(segments.most), claims_.get(),
                        episode_claims_.get(),
                        base::Divider(static_cast<uint32_t>(tables.page_steps))};
  const uint64_t threads = uint64_t{segments.num_segments} * segments.most;
  GEAR_CHECK(threads < ~uint32_t{0} - kBlock);
  const int levels = tables.least_levels();
  if (threads <= kBlock) {  // in as many as a change of scale makes use of: see weigh_all()
    base::launch_following<apply_few_updates>(1, kBlock, stream_, tables, updates, levels > 0);
    return;
  }
  const auto blocks = static_cast<unsigned>((threads + kBlock - 1) / kBlock);
  base::launch_following<claim_updates>(blocks, kBlock, stream_, tables, updates);
  base::launch_following<apply_updates>(blocks, kBlock, stream_, tables, updates);
  for (int level = 1; level <= levels; ++level) {
    const uint64_t nodes = tables.weights[0].tree.counts[level];
    const auto warps = static_cast<unsigned>((std::min(nodes, threads) + kWarps - 1) / kWarps);
    base::launch_following<refresh_least_of_many>(warps, kBlock, stream_, tables, updates, level,
                                                  nodes <= threads);
  }
}

}  // namespace gear::store

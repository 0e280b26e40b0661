#include "store/mirror/cuda/device_update.h"

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "base/numbers/divider.h"
#include "store/index/fixed_point.h"
#include "store/index/update_check.h"
#include "store/mirror/cuda/device_tree.cuh"

namespace gear::store {
namespace {

constexpr unsigned kBlock = 128;
constexpr uint64_t kMostInOneBlock = 512;

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
  if (page.episode == kNone) {
    return {};
  }
  const DeviceEpisode& episode = tables.episodes[page.episode];
  return {is_stored(id, row, page, episode.begin, episode.end), id.episode, id.slot, page.episode};
}

__device__ Named look_up(const DeviceTables& tables, const Updates& updates, uint32_t thread) {
  const UpdateSegments& segments = updates.segments;
  const uint32_t segment = updates.by_most.divide(thread);
  const uint32_t i = updates.by_most.remainder(thread, segment);
  if (segment >= segments.num_segments) {
    return {};
  }
  const uint64_t first = segments.first + segment * segments.stride;
  const UpdateEntry entry = segments.entries[(first + i) & segments.mask];
  if (segments.counted) {
    const UpdateEntry* header = segments.entries + first - UpdateSegments::kHeader;
    if (i >= *reinterpret_cast<const uint64_t*>(header)) {
      return {};
    }
  }
  if (entry.id < 0) {
    return {};
  }
  return {true, entry.priority, 1 + segment * segments.orders + entry.order,
          target_of(tables, updates, entry.id)};
}

__device__ uint32_t* claim_of(const Updates& updates, const Target& target) {
  return target.episode ? updates.episode_claims + target.episode_number
                        : updates.step_claims + target.slot;
}

__device__ void raise_claim(const Updates& updates, const Named& named) {
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

// Priorities are 0 or more: their order is that of their bits.
__device__ void raise_largest(float* largest, float priority) {
  for (int step = kWarpSize / 2; step > 0; step /= 2) {
    priority = fmaxf(priority, __shfl_xor_sync(kWholeWarp, priority, step));
  }
  if (lane_id() == 0) {
    atomicMax(reinterpret_cast<unsigned*>(largest), __float_as_uint(priority));
  }
}

// Weighs the targets of a warp anew in every tree: of the `steps` that it may draw, which weigh 1
// or more, what is cut is counted, and those that are `last` are set. Others may see what the last
// of their step has set, which is not 0 either.
__device__ void weigh_warp(const DeviceTables& tables, const Target& target, float priority,
                           bool step, bool last) {
  for (int k = 0; k < tables.num_weights; ++k) {
    const DeviceTables::Weights& weights = tables.weights[k];
    uint64_t gained = 0;
    bool saturated = false;
    if (step) {
      uint64_t* leaf = weights.tree.levels[0] + target.slot;
      const uint64_t before = __ldcg(leaf);
      if (before != 0) {
        const uint64_t after =
            fixed_weight(priority, weights.alpha, tables.weight_limit, saturated);
        if (last) {
          gained = after - before;
          *leaf = after;
        }
      }
    }
    count_warp(saturated, &tables.scalars->saturated_weights);
    warp_add_scattered(weights.tree, target.slot, gained);
  }
}

// By whole warps: those threads that have no update of their own take part in sums.
__device__ void settle(const DeviceTables& tables, const Updates& updates, const Named& named) {
  const Target& target = named.target;
  const float priority = named.priority;
  const bool step = target.stored && !target.episode;
  count_warp(named.given && !target.stored, &tables.scalars->stale_updates);
  raise_largest(&tables.scalars->max_priority[tables.largest], step ? fabsf(priority) : 0.0F);
  const bool last = target.stored && take_claim(updates, named);
  if (last && step) {
    tables.priorities[target.slot] = fabsf(priority);
  } else if (last) {
    tables.episode_weights[target.episode_number] = static_cast<double>(priority);
  }
  weigh_warp(tables, target, priority, step, last);
}

__global__ void claim_updates(const __grid_constant__ DeviceTables tables,
                              const __grid_constant__ Updates updates) {
  base::follow();
  base::let_next_in();
  raise_claim(updates, look_up(tables, updates, blockIdx.x * kBlock + threadIdx.x));
}

__global__ void apply_updates(const __grid_constant__ DeviceTables tables,
                              const __grid_constant__ Updates updates) {
  base::follow();
  base::let_next_in();
  settle(tables, updates, look_up(tables, updates, blockIdx.x * kBlock + threadIdx.x));
}

// Both, of so few that one block has them all.
__global__ void __launch_bounds__(kMostInOneBlock)
    apply_few_updates(const __grid_constant__ DeviceTables tables,
                      const __grid_constant__ Updates updates) {
  base::follow();
  base::let_next_in();
  const Named named = look_up(tables, updates, threadIdx.x);
  raise_claim(updates, named);
  __syncthreads();
  settle(tables, updates, named);
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
  if (threads <= kMostInOneBlock) {
    const uint64_t whole_warps = (threads + kWarpSize - 1) / kWarpSize * kWarpSize;
    base::launch_following<apply_few_updates>(1, static_cast<unsigned>(whole_warps), stream_,
                                              tables, updates);
    return;
  }
  const auto blocks = static_cast<unsigned>((threads + kBlock - 1) / kBlock);
  base::launch_following<claim_updates>(blocks, kBlock, stream_, tables, updates);
  base::launch_following<apply_updates>(blocks, kBlock, stream_, tables, updates);
}

}  // namespace gear::store

#include "store/mirror/cuda/device_update.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/errors.h"
#include "base/numbers/divider.h"
#include "store/index/fixed_point.h"
#include "store/index/update_check.h"
#include "store/mirror/cuda/device_tree.cuh"

namespace gear::store {
namespace {

constexpr unsigned kBlock = 128;
constexpr uint64_t kLeastPartBytes = 48 << 10;  // 4096 updates
constexpr unsigned long long kNoneBad = ~0ULL;

// One call of update(), as its two kernels see it.
//
// A claim says which position names a step (or an episode) last: 1 + that, 0 between two calls.
// check_updates raises the claims; in apply_updates the thread of that position, and no other,
// writes the step and resets the claim. The others may read the claim before or after that reset,
// it makes no difference: it holds either the number of another position or 0, and neither is
// theirs. If the call holds something wrong, every thread resets what it claimed, and nothing is
// written.
struct Updates {
  const int64_t* ids;
  const float* priorities;
  uint64_t count;
  uint32_t* step_claims;               // by slot
  uint32_t* episode_claims;            // by episode
  unsigned long long* first_bad;       // position, or kNoneBad
  unsigned long long* next_first_bad;  // of the next call, which finds it reset
  UpdateQueue::Failure* failure;       // where to report it
  uint64_t number;                     // of the call
  base::Divider by_page_steps;
};

// What an update names, if that is stored.
struct Target {
  bool stored;
  bool episode;
  bool offered;
  uint32_t slot;
  uint32_t episode_number;
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
  return {is_stored(id, row, page, episode.begin, episode.end), id.episode, row < page.anchors,
          id.slot, page.episode};
}

__device__ uint32_t* claim_of(const Updates& updates, const Target& target) {
  return target.episode ? updates.episode_claims + target.episode_number
                        : updates.step_claims + target.slot;
}

__global__ void check_updates(const __grid_constant__ DeviceTables tables,
                              const __grid_constant__ Updates updates) {
  const uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= updates.count) {
    return;
  }
  const int64_t id = updates.ids[i];
  if (!is_id_of(id, tables.owner, tables.num_slots) || !is_priority(updates.priorities[i])) {
    atomicMin(updates.first_bad, i);
    return;
  }
  const Target target = target_of(tables, updates, id);
  if (target.stored) {
    atomicMax(claim_of(updates, target), static_cast<uint32_t>(i + 1));
  }
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

// Whether position `i` is the last that names its target, whose claim is then reset.
__device__ bool take_claim(const Updates& updates, const Target& target, uint64_t i) {
  uint32_t* claim = claim_of(updates, target);
  if (*claim != static_cast<uint32_t>(i + 1)) {
    return false;
  }
  *claim = 0;
  return true;
}

__device__ void report(const Updates& updates, uint64_t position, int64_t id, float priority) {
  updates.failure->position = position;
  updates.failure->id = id;
  updates.failure->priority = priority;
  __threadfence_system();
  *reinterpret_cast<volatile uint64_t*>(&updates.failure->update) = updates.number;
}

// Weighs the targets of a warp anew in every tree: of the steps that are `offered` what is cut is
// counted, and those that are `last` are set.
__device__ void weigh_warp(const DeviceTables& tables, const Target& target, float priority,
                           bool offered, bool last) {
  for (int k = 0; k < tables.num_weights; ++k) {
    const DeviceTables::Weights& weights = tables.weights[k];
    uint64_t gained = 0;
    bool saturated = false;
    if (offered) {
      const uint64_t after = fixed_weight(priority, weights.alpha, tables.weight_limit, saturated);
      if (last) {
        uint64_t* leaf = weights.tree.levels[0] + target.slot;
        gained = after - *leaf;
        *leaf = after;
      }
    }
    count_warp(saturated, &tables.scalars->saturated_weights);
    warp_add_scattered(weights.tree, target.slot, gained);
  }
}

// Whole warps come to the end: those threads that have no update of their own take part in sums.
__global__ void apply_updates(const __grid_constant__ DeviceTables tables,
                              const __grid_constant__ Updates updates) {
  const uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  const unsigned long long bad = *updates.first_bad;
  if (i == 0) {
    *updates.next_first_bad = kNoneBad;
  }
  const int64_t id = i < updates.count ? updates.ids[i] : -1;
  const float priority = i < updates.count ? updates.priorities[i] : 0.0F;
  const bool valid = is_id_of(id, tables.owner, tables.num_slots);
  const Target target = valid ? target_of(tables, updates, id) : Target{};
  if (bad != kNoneBad) {
    if (target.stored) {
      *claim_of(updates, target) = 0;
    }
    if (i == bad) {
      report(updates, i, id, priority);
    }
    return;
  }
  const bool step = target.stored && !target.episode;
  count_warp(valid && !target.stored, &tables.scalars->stale_updates);
  raise_largest(&tables.scalars->max_priority[tables.largest], step ? fabsf(priority) : 0.0F);
  const bool last = target.stored && take_claim(updates, target, i);
  if (last && step) {
    tables.priorities[target.slot] = target.offered ? fabsf(priority) : -fabsf(priority);
  } else if (last) {
    tables.episode_weights[target.episode_number] = static_cast<double>(priority);
  }
  weigh_warp(tables, target, priority, step && target.offered, last);
}

// The GPU whose memory this is.
int device_of(const void* data) {
  cudaPointerAttributes attributes{};
  GEAR_CUDA_TRY(cudaPointerGetAttributes(&attributes, data));
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    throw base::InvalidArgument(
        "[store] ids or priorities that say they are on a GPU are in host memory: give CUDA "
        "arrays, or NumPy arrays");
  }
  return attributes.device;
}

}  // namespace

UpdateQueue::UpdateQueue(uint64_t num_slots, uint64_t num_episodes, cudaStream_t stream, int device)
    : device_(device),
      claims_(num_slots, device),
      episode_claims_(num_episodes, device),
      first_bad_(2, device),
      staging_(kParts, device) {
  const base::OnDevice current(device);
  failures_ = base::PinnedArray<Failure>(kFailures, device);
  std::fill_n(failures_.get(), kFailures, Failure{});
  arrived_ = base::Event();
  GEAR_CUDA_TRY(cudaMemsetAsync(claims_.get(), 0, claims_.bytes(), stream));
  GEAR_CUDA_TRY(cudaMemsetAsync(episode_claims_.get(), 0, episode_claims_.bytes(), stream));
  GEAR_CUDA_TRY(cudaMemsetAsync(first_bad_.get(), 0xff, first_bad_.bytes(), stream));
}

void UpdateQueue::copy_from_device(std::byte* there, const int64_t* ids, const float* priorities,
                                   uint64_t count, cudaStream_t made_on, cudaStream_t stream) {
  const int source = device_of(ids);
  const base::OnDevice current(source);
  GEAR_CUDA_TRY(cudaMemcpyAsync(there, ids, count * sizeof(int64_t), cudaMemcpyDefault, made_on));
  GEAR_CUDA_TRY(cudaMemcpyAsync(there + count * sizeof(int64_t), priorities, count * sizeof(float),
                                cudaMemcpyDefault, made_on));
  if (source == device_) {
    arrived_.record(made_on);
    arrived_.make_wait(stream);
  } else {
    base::Event arrived;  // of the GPU that the stream belongs to
    arrived.record(made_on);
    arrived.make_wait(stream);
  }
}

void UpdateQueue::enqueue(const int64_t* ids, const float* priorities, uint64_t count,
                          bool on_device, cudaStream_t made_on, const DeviceTables& tables,
                          cudaStream_t stream) {
  GEAR_CHECK(count < ~uint32_t{0});
  if (count == 0) {
    return;
  }
  const uint64_t bytes = count * (sizeof(int64_t) + sizeof(float));
  const uint64_t room = std::max(bytes, kLeastPartBytes);
  std::byte* there = nullptr;
  if (on_device) {
    there = staging_.acquire_on_device(room, made_on);
    copy_from_device(there, ids, priorities, count, made_on, stream);
  } else {
    std::byte* const part = staging_.acquire(room);
    std::memcpy(part, ids, count * sizeof(int64_t));
    std::memcpy(part + count * sizeof(int64_t), priorities, count * sizeof(float));
    there = staging_.send(bytes, stream);
  }
  ++number_;
  const Updates updates{reinterpret_cast<const int64_t*>(there),
                        reinterpret_cast<const float*>(there + count * sizeof(int64_t)),
                        count,
                        claims_.get(),
                        episode_claims_.get(),
                        first_bad_.get() + number_ % 2,
                        first_bad_.get() + (number_ + 1) % 2,
                        failures_.get() + number_ % kFailures,
                        number_,
                        base::Divider(static_cast<uint32_t>(tables.page_steps))};
  const auto blocks = static_cast<unsigned>((count + kBlock - 1) / kBlock);
  check_updates<<<blocks, kBlock, 0, stream>>>(tables, updates);
  GEAR_CUDA_TRY(cudaGetLastError());
  apply_updates<<<blocks, kBlock, 0, stream>>>(tables, updates);
  GEAR_CUDA_TRY(cudaGetLastError());
  staging_.release(stream);
}

void UpdateQueue::raise_failed() {
  Failure* oldest = nullptr;
  for (uint64_t i = 0; i < kFailures; ++i) {
    Failure& failure = failures_[i];
    // The GPU writes the number after the rest.
    if (std::atomic_ref(failure.update).load(std::memory_order_acquire) == 0) {
      continue;
    }
    if (oldest == nullptr || failure.update < oldest->update) {
      oldest = &failure;
    }
  }
  if (oldest == nullptr) {
    return;
  }
  const Failure failure = *oldest;
  oldest->update = 0;
  throw base::InvalidArgument(
      base::cat(update_refusal(failure.id, failure.priority, failure.position), " (update ",
                number_ - failure.update + 1, " calls ago, on GPU ", device_, ")"));
}

}  // namespace gear::store

#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "base/numbers/philox.h"
#include "group/cuda/device_meeting.cuh"
#include "group/cuda/device_shares.h"
#include "group/cuda/offered_ranges.cuh"
#include "select/cuda/device_draw.cuh"

namespace gear::group {
namespace {

// Neighbouring draws of a thread: one, so that small batches have threads enough, or some.
constexpr uint32_t kMostEach = 8;
constexpr uint64_t kOneEach = 1 << 18;  // draws, up to which it is one
constexpr uint32_t kThreads = 256;
constexpr unsigned kWarp = 32;
constexpr unsigned kWholeWarp = 0xffffffffU;

struct Look {
  OfferedTotals totals;
  DeviceShare share;
  unsigned long long* parts;
  uint64_t seed;
  uint64_t made;
  uint64_t own_first;  // draws of the batch that this rank's place in it receives, where that goes
  uint64_t own_end;    // by the draws' numbers
  uint32_t launch;     // number of it, which marks what its blocks say
  uint32_t draws;
  uint32_t rank;
  uint32_t size;
};

// Counts how many of the warp's draws fall on each rank, and how many of those are received here,
// in the block's sums.
__device__ void count_owners(uint32_t owner, bool receives, uint32_t size, uint32_t* drawn,
                             uint32_t* received) {
  const unsigned lane = threadIdx.x % kWarp;
  for (uint32_t r = 0; r < size; ++r) {
    const unsigned fell = __ballot_sync(kWholeWarp, owner == r);
    const unsigned here = __ballot_sync(kWholeWarp, owner == r && receives);
    if (lane == r && fell != 0) {
      atomicAdd(drawn + r, static_cast<uint32_t>(__popc(fell)));
      atomicAdd(received + r, static_cast<uint32_t>(__popc(here)));
    }
  }
}

// What the blocks before this one hold in all; tells those behind it of `own`. Blocks start in the
// order of their numbers, so that none waits for one that waits for a place.
__device__ uint32_t before_block(const Look& job, uint32_t own) {
  using Sum = cub::BlockReduce<uint32_t, kThreads>;
  __shared__ typename Sum::TempStorage storage;
  __shared__ uint32_t before;
  const uint64_t mark = uint64_t{job.launch} << 32;
  if (threadIdx.x == 0) {
    *static_cast<volatile unsigned long long*>(job.parts + blockIdx.x) = mark | own;
  }
  uint32_t sum = 0;
  for (uint32_t p = threadIdx.x; p < blockIdx.x; p += kThreads) {
    uint64_t said = 0;
    do {
      said = *static_cast<volatile unsigned long long*>(job.parts + p);
    } while (said >> 32 != job.launch);
    sum += static_cast<uint32_t>(said);
  }
  const uint32_t all = Sum(storage).Sum(sum);
  if (threadIdx.x == 0) {
    before = all;
  }
  __syncthreads();
  return before;
}

// A thread kEach neighbouring draws.
template <uint32_t kEach>
__global__ void __launch_bounds__(kThreads)
    look_at_draws(const __grid_constant__ Meeting meeting, const __grid_constant__ Look job) {
  using Scan = cub::BlockScan<uint32_t, kThreads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ OfferedRanges ranges;
  __shared__ uint32_t drawn[kMostGpuRanks];
  __shared__ uint32_t received[kMostGpuRanks];
  base::follow();
  if (threadIdx.x < kMostGpuRanks) {
    drawn[threadIdx.x] = 0;
    received[threadIdx.x] = 0;
  }
  come_to(meeting);
  base::let_next_in();
  ranges.make(job.totals, job.rank, job.size);
  __syncthreads();
  const uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * kEach;
  uint64_t targets[kEach];
  uint32_t own = 0;  // a bit a draw
#pragma unroll
  for (uint32_t k = 0; k < kEach; ++k) {
    const uint32_t draw = first + k;
    uint32_t owner = kMostGpuRanks;
    targets[k] = 0;
    if (draw < job.draws && ranges.all() > 0) {
      const base::Draw128 bits = select::draw_bits(job.seed, job.made + draw);
      const uint64_t target = base::scale_to(bits, ranges.all());
      owner = ranges.owner_of(target, job.size);
      targets[k] = ranges.finer == 0
                       ? target - ranges.begin[job.rank]
                       : base::scale_to(base::fraction_of(bits, ranges.all()), ranges.places);
    }
    own |= (owner == job.rank ? 1U : 0U) << k;
    count_owners(owner, draw >= job.own_first && draw < job.own_end, job.size, drawn, received);
  }
  uint32_t at = 0;
  uint32_t all = 0;
  Scan(storage).ExclusiveSum(static_cast<uint32_t>(__popc(own)), at, all);
  at += before_block(job, all);
#pragma unroll
  for (uint32_t k = 0; k < kEach; ++k) {
    if ((own >> k & 1) != 0) {
      job.share.numbers[at] = first + k;
      job.share.targets[at] = targets[k];
      ++at;
    }
  }
  if (threadIdx.x < job.size && drawn[threadIdx.x] != 0) {
    atomicAdd(job.share.drawn + threadIdx.x, drawn[threadIdx.x]);
    atomicAdd(job.share.received + threadIdx.x, received[threadIdx.x]);
  }
}

__global__ void start_counts(DeviceShare share) {
  share.drawn[threadIdx.x] = 0;
  share.received[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    *share.least = __uint_as_float(select::kNoLeast);
  }
}

uint32_t blocks_of(uint64_t draws) {
  const uint64_t part = kThreads * (draws <= kOneEach ? 1 : kMostEach);
  return static_cast<uint32_t>((draws + part - 1) / part);
}

}  // namespace

DeviceShares::DeviceShares(uint32_t rank, uint32_t size, uint64_t batch_size, Locality locality,
                           uint64_t seed, int device)
    : rank_(rank),
      size_(size),
      batch_size_(batch_size),
      locality_(locality),
      seed_(seed),
      numbers_(draws(), device),
      targets_(draws(), device),
      parts_(blocks_of(draws()), device),
      counts_(2 * kMostGpuRanks + 1, device) {
  GEAR_CHECK(size_ <= kMostGpuRanks && draws() <= UINT32_MAX - uint64_t{kThreads} * kMostEach);
  share_ = {numbers_.get(), targets_.get(), counts_.get(), counts_.get() + kMostGpuRanks,
            reinterpret_cast<float*>(counts_.get() + 2 * kMostGpuRanks)};
  const base::OnDevice on(device);
  const base::Stream stream(device);
  GEAR_CUDA_TRY(cudaMemsetAsync(parts_.get(), 0, parts_.bytes(), stream));
  start_counts<<<1, kMostGpuRanks, 0, stream>>>(share_);
  GEAR_CUDA_TRY(cudaGetLastError());
  stream.synchronize();  // no other stream waits for it
}

void DeviceShares::launch(const OfferedTotals& totals, const Meeting& meeting, uint64_t made,
                          cudaStream_t stream) {
  const base::OnDevice on(counts_.device());
  const bool by_number = locality_ == Locality::kOff;
  const Look job{.totals = totals,
                 .share = share_,
                 .parts = parts_.get(),
                 .seed = seed_,
                 .made = made,
                 .own_first = by_number ? rank_ * batch_size_ : 0,
                 .own_end = by_number ? (rank_ + 1) * batch_size_ : 0,
                 .launch = ++launches_,
                 .draws = static_cast<uint32_t>(draws()),
                 .rank = rank_,
                 .size = size_};
  const uint32_t blocks = blocks_of(draws());
  const Meeting first_meets = meet_first(meeting, blocks, stream);
  if (draws() <= kOneEach) {
    base::launch_following<look_at_draws<1>>(blocks, kThreads, stream, first_meets, job);
  } else {
    base::launch_following<look_at_draws<kMostEach>>(blocks, kThreads, stream, first_meets, job);
  }
}

}  // namespace gear::group

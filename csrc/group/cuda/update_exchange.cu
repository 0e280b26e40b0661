#include "group/cuda/update_exchange.h"

#include <algorithm>

#include "base/cuda/following.cuh"
#include "base/errors.h"
#include "group/cuda/device_meeting.cuh"
#include "store/id.h"

namespace gear::group {
namespace {

using store::UpdateEntry;
using store::UpdateSegments;

constexpr unsigned kBlock = 256;
constexpr unsigned kWholeWarp = 0xffffffffU;
constexpr uint32_t kNobody = ~0U;

struct Scatter {
  const UpdateEntry* ring;
  uint64_t mask;
  uint64_t first;
  uint64_t count;
  UpdateExchange::Counts* counts;
  uint32_t ranks;
  UpdateEntry* segments[UpdateExchange::kMostRanks];  // by owner: this rank's part of its inbox
};

// A place in the segment of `owner` (kNobody: none) for each lane of the warp. Lanes of one owner
// get neighbouring ones, by one addition.
__device__ uint64_t place_of(UpdateExchange::Counts* counts, uint32_t owner) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned alike = __match_any_sync(kWholeWarp, owner);
  const int leader = __ffs(static_cast<int>(alike)) - 1;
  unsigned long long base = 0;
  if (owner != kNobody && static_cast<int>(lane) == leader) {
    base = atomicAdd(&counts->entries[owner], static_cast<unsigned long long>(__popc(alike)));
  }
  base = __shfl_sync(kWholeWarp, base, leader);
  return base + static_cast<unsigned>(__popc(alike & ((1U << lane) - 1)));
}

__global__ void scatter_updates(const __grid_constant__ Meeting meeting,
                                const __grid_constant__ Scatter job) {
  base::follow();
  const uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  UpdateEntry entry{-1, 0.0F, 0};
  if (i < job.count) {
    entry = job.ring[(job.first + i) & job.mask];
  }
  const uint32_t owner = entry.id < 0 ? kNobody : store::StepId::unpack(entry.id).owner;
  const uint64_t place = place_of(job.counts, owner);
  if (owner != kNobody) {
    entry.order = static_cast<uint32_t>(i);
    job.segments[owner][UpdateSegments::kHeader + place] = entry;
  }
  // The last block to come here writes how many there are, and tells the other ranks.
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    last = atomicAdd(&job.counts->blocks_done, 1U) + 1 == gridDim.x;
    __threadfence_system();
  }
  __syncthreads();
  if (!last) {
    return;
  }
  for (uint32_t r = threadIdx.x; r < job.ranks; r += kBlock) {
    *reinterpret_cast<uint64_t*>(job.segments[r]) = atomicExch(&job.counts->entries[r], 0ULL);
  }
  if (threadIdx.x == 0) {
    job.counts->blocks_done = 0;
  }
  __syncthreads();
  if (meeting.number != 0 && threadIdx.x < meeting::kWarp) {
    meeting::come(meeting);
  }
}

}  // namespace

UpdateExchange::UpdateExchange(store::Shard& shard, std::shared_ptr<store::DeviceIndex> mirror,
                               uint32_t rank, std::span<const uint64_t> num_slots, uint64_t room)
    : shard_(shard),
      mirror_(std::move(mirror)),
      rank_(rank),
      room_(room),
      intake_(0, num_slots, mirror_->stream()),
      counts_(1, mirror_->device()),
      kept_(num_slots.size()),
      sender_(ranks()) {
  GEAR_CHECK(mirror_->holds_priorities());
  GEAR_CHECK(ranks() <= kMostRanks && rank < ranks() && room > 0 && room <= most_room(ranks()));
  const base::OnDevice current(device());
  GEAR_CUDA_TRY(cudaMemsetAsync(counts_.get(), 0, counts_.bytes(), mirror_->stream()));
}

UpdateExchange::~UpdateExchange() { store::drain(shard_, *mirror_); }

uint64_t UpdateExchange::inbox_bytes(uint32_t ranks, uint64_t room) {
  return 2 * ranks * (UpdateSegments::kHeader + room) * sizeof(UpdateEntry);
}

void UpdateExchange::keep(const int64_t* ids, const float* priorities, uint64_t count,
                          bool on_device, uintptr_t stream) {
  intake_.keep(ids, priorities, count, on_device, reinterpret_cast<cudaStream_t>(stream));
}

void UpdateExchange::take(std::vector<int64_t>& ids, std::vector<float>& priorities) {
  for (const UpdateEntry& entry : intake_.fetch()) {
    ids.push_back(entry.id);
    priorities.push_back(entry.priority);
  }
}

void UpdateExchange::begin(std::span<const uint64_t> kept) {
  GEAR_CHECK(kept.size() == kept_.size() && kept[rank_] <= this->kept());
  std::ranges::copy(kept, kept_.begin());
  sender_ = 0;
  sent_ = 0;
}

// In the order of the ranks: who has more than there is room for ends the round, and those behind
// it send in the next ones.
bool UpdateExchange::next_round() {
  own_ = most_ = 0;
  while (sender_ < ranks()) {
    const uint64_t count = std::min(room_, kept_[sender_] - sent_);
    if (sender_ == rank_) {
      own_ = count;
    }
    most_ = std::max(most_, count);
    sent_ += count;
    if (sent_ < kept_[sender_]) {
      break;
    }
    ++sender_;
    sent_ = 0;
  }
  round_ += most_ > 0 ? 1 : 0;
  return most_ > 0;
}

void UpdateExchange::scatter(std::span<std::byte* const> inboxes, const Meeting& meeting) {
  GEAR_CHECK(inboxes.size() == ranks() && most_ > 0);
  const base::OnDevice current(device());
  Scatter job{intake_.ring(), intake_.mask(), intake_.begin(), own_, counts_.get(), ranks(), {}};
  for (uint32_t r = 0; r < ranks(); ++r) {
    job.segments[r] = reinterpret_cast<UpdateEntry*>(inboxes[r]) + half_begin() + rank_ * stride();
  }
  const auto blocks = static_cast<unsigned>(std::max<uint64_t>(1, (own_ + kBlock - 1) / kBlock));
  base::launch_following<scatter_updates>(blocks, kBlock, mirror_->stream(), meeting, job);
  intake_.release(intake_.begin() + own_);
}

void UpdateExchange::apply(std::byte* own_inbox) {
  const store::UpdateSegments arrived{reinterpret_cast<const UpdateEntry*>(own_inbox),
                                      ~uint64_t{0},
                                      half_begin() + UpdateSegments::kHeader,
                                      stride(),
                                      ranks(),
                                      static_cast<uint32_t>(most_),
                                      static_cast<uint32_t>(room_),
                                      true};
  for (const auto& mirror : shard_.mirrors().all()) {
    if (mirror->holds_priorities()) {
      mirror->device_index()->apply(arrived, mirror_->stream());
    }
  }
}

}  // namespace gear::group

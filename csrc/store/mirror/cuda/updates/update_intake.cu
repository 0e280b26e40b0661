#include "store/mirror/cuda/updates/update_intake.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/errors.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kLeastRing = 1 << 18;  // entries: 64 calls of 4096
constexpr unsigned long long kNoneBad = ~0ULL;

struct Call {
  const int64_t* ids;
  const float* priorities;
  uint64_t count;
  UpdateEntry* ring;
  uint64_t mask;
  uint64_t first;  // position
  const uint64_t* num_slots;
  uint32_t first_owner;
  uint32_t num_owners;
  UpdateIntake::CallState* state;
  UpdateIntake::Failure* failure;
  uint64_t number;
};

__device__ bool is_allowed(const Call& call, int64_t id, float priority) {
  const uint32_t owner = StepId::unpack(id).owner;
  const uint32_t number = owner - call.first_owner;
  return is_priority(priority) && number < call.num_owners &&
         is_id_of(id, owner, call.num_slots[number]);
}

// Of one thread a block: what is wrong with the call, in the last block that comes here; kNoneBad
// in the others.
__device__ unsigned long long bad_of_call(UpdateIntake::CallState* state,
                                          unsigned long long of_block) {
  if (of_block != kNoneBad) {
    atomicMin(&state->first_bad, of_block);
  }
  __threadfence();  // with the block's entries, which the last block may overwrite
  if (atomicAdd(&state->blocks_done, 1U) + 1 < gridDim.x) {
    return kNoneBad;
  }
  __threadfence();
  state->blocks_done = 0;
  return atomicExch(&state->first_bad, kNoneBad);
}

__device__ void report(const Call& call, uint64_t position) {
  call.failure->position = position;
  call.failure->id = call.ids[position];
  call.failure->priority = call.priorities[position];
  __threadfence_system();
  *reinterpret_cast<volatile uint64_t*>(&call.failure->call) = call.number;
}

__global__ void take_in(const __grid_constant__ Call call) {
  __shared__ unsigned long long shared_bad;
  if (threadIdx.x == 0) {
    shared_bad = kNoneBad;
  }
  __syncthreads();
  const uint64_t i = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i < call.count) {
    const int64_t id = call.ids[i];
    const float priority = call.priorities[i];
    call.ring[(call.first + i) & call.mask] = {id, priority, static_cast<uint32_t>(i)};
    if (!is_allowed(call, id, priority)) {
      atomicMin(&shared_bad, static_cast<unsigned long long>(i));
    }
  }
  __syncthreads();
  if (gridDim.x > 1) {
    if (threadIdx.x == 0) {
      shared_bad = bad_of_call(call.state, shared_bad);
    }
    __syncthreads();
  }
  const unsigned long long bad = shared_bad;
  if (bad == kNoneBad) {
    return;
  }
  for (uint64_t k = threadIdx.x; k < call.count; k += kBlock) {
    call.ring[(call.first + k) & call.mask].id = -1;
  }
  if (threadIdx.x == 0) {
    report(call, bad);
  }
}

// The GPU whose memory this is.
int device_of(const void* data) {
  cudaPointerAttributes attributes{};
  GEAR_CUDA_TRY(cudaPointerGetAttributes(&attributes, data));
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    throw base::InvalidArgument(
        "[buffer] ids or priorities that say they are on a GPU are in host memory: give CUDA "
        "arrays, or NumPy arrays");
  }
  return attributes.device;
}

}  // namespace

UpdateIntake::UpdateIntake(uint32_t first_owner, std::span<const uint64_t> num_slots,
                           const base::Stream& stream)
    : stream_(stream),
      device_(stream.device()),
      first_owner_(first_owner),
      num_slots_(num_slots.size(), device_),
      states_(kCalls, device_),
      failures_(kCalls, device_),
      ring_(kLeastRing, device_),
      staging_(kParts, device_) {
  const base::OnDevice current(device_);
  std::fill_n(failures_.get(), kCalls, Failure{});
  marks_.resize(kMarks);
  taken_in_.resize(kCalls);
  // Callers' streams know nothing of the mirror's, so that this waits; on a stream of its own,
  // since the mirror's may have a training step to wait for.
  const base::Stream first(device_);
  const std::vector<CallState> states(kCalls, CallState{kNoneBad, 0});
  GEAR_CUDA_TRY(cudaMemcpyAsync(num_slots_.get(), num_slots.data(), num_slots_.bytes(),
                                cudaMemcpyHostToDevice, first));
  GEAR_CUDA_TRY(cudaMemcpyAsync(states_.get(), states.data(), states_.bytes(),
                                cudaMemcpyHostToDevice, first));
  first.synchronize();
}

// Whatever a caller's stream had to do, this one waits for.
UpdateIntake::~UpdateIntake() { stream_.drain(); }

void UpdateIntake::keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
                        cudaStream_t made_on) {
  GEAR_CHECK(count < ~uint32_t{0});
  if (count == 0) {
    return;
  }
  const base::OnDevice current(device_);
  const uint64_t ids_bytes = count * sizeof(int64_t);
  const uint64_t priorities_bytes = count * sizeof(float);
  const int source = on_device ? device_of(ids) : -1;
  const bool here = source == device_;
  const cudaStream_t writer = here ? made_on : static_cast<cudaStream_t>(stream_);
  make_room(count, writer);
  if (!here) {
    std::byte* there = nullptr;
    if (on_device) {
      there = staging_.acquire_on_device(ids_bytes + priorities_bytes, made_on);
      const base::OnDevice beside(source);
      GEAR_CUDA_TRY(cudaMemcpyAsync(there, ids, ids_bytes, cudaMemcpyDefault, made_on));
      GEAR_CUDA_TRY(cudaMemcpyAsync(there + ids_bytes, priorities, priorities_bytes,
                                    cudaMemcpyDefault, made_on));
      base::Event copied;  // of the GPU that the stream belongs to
      copied.record(made_on);
      copied.make_wait(stream_);
    } else {
      std::byte* const part = staging_.acquire(ids_bytes + priorities_bytes);
      std::memcpy(part, ids, ids_bytes);
      std::memcpy(part + ids_bytes, priorities, priorities_bytes);
      there = staging_.send(ids_bytes + priorities_bytes, stream_);
    }
    ids = reinterpret_cast<const int64_t*>(there);
    priorities = reinterpret_cast<const float*>(there + ids_bytes);
  }
  ++number_;
  const uint64_t turn = number_ % kCalls;
  taken_in_[turn].make_wait(writer);  // that call may have been on another stream
  const Call call{ids,
                  priorities,
                  count,
                  ring_.get(),
                  mask(),
                  end_,
                  num_slots_.get(),
                  first_owner_,
                  static_cast<uint32_t>(num_slots_.size()),
                  states_.get() + turn,
                  failures_.get() + turn,
                  number_};
  take_in<<<static_cast<unsigned>((count + kBlock - 1) / kBlock), kBlock, 0, writer>>>(call);
  GEAR_CUDA_TRY(cudaGetLastError());
  taken_in_[turn].record(writer);
  if (here) {
    taken_in_[turn].make_wait(stream_);
  } else {
    staging_.release(stream_);
  }
  end_ += count;
}

void UpdateIntake::make_room(uint64_t count, cudaStream_t writer) {
  if (end_ + count - begin_ > ring_.size()) {
    grow(count);
  }
  const uint64_t stop = end_ + count;
  if (stop <= free_until_ + ring_.size()) {
    return;
  }
  const uint64_t needed = stop - ring_.size();
  if (marked_ < needed) {
    mark();
  }
  const Mark* earliest = nullptr;
  for (const Mark& one : marks_) {
    if (one.position >= needed && (earliest == nullptr || one.position < earliest->position)) {
      earliest = &one;
    }
  }
  GEAR_CHECK(earliest != nullptr);
  if (earliest->read.done()) {
    free_until_ = earliest->position;
  } else {
    earliest->read.make_wait(writer);
  }
}

void UpdateIntake::grow(uint64_t count) {
  const uint64_t kept = end_ - begin_;
  base::DeviceArray<UpdateEntry> larger(std::bit_ceil(2 * (kept + count)), device_);
  for (uint64_t position = begin_; position < end_;) {
    const uint64_t at = position & mask();
    const uint64_t run = std::min(end_ - position, ring_.size() - at);
    GEAR_CUDA_TRY(cudaMemcpyAsync(larger.get() + (position & (larger.size() - 1)), ring_.get() + at,
                                  run * sizeof(UpdateEntry), cudaMemcpyDeviceToDevice, stream_));
    position += run;
  }
  old_rings_.push_back(std::move(ring_));
  ring_ = std::move(larger);
  free_until_ = begin_;
  marked_ = begin_;
}

void UpdateIntake::mark() {
  Mark& next = marks_[next_mark_];
  next_mark_ = (next_mark_ + 1) % kMarks;
  next.position = begin_;
  next.read.record(stream_);
  marked_ = begin_;
}

void UpdateIntake::release(uint64_t position) {
  GEAR_CHECK(begin_ <= position && position <= end_);
  begin_ = position;
  if (begin_ - marked_ >= ring_.size() / kMarks) {
    mark();
  }
}

std::vector<UpdateEntry> UpdateIntake::fetch() {
  const base::OnDevice current(device_);
  std::vector<UpdateEntry> entries(end_ - begin_);
  for (uint64_t position = begin_; position < end_;) {
    const uint64_t at = position & mask();
    const uint64_t run = std::min(end_ - position, ring_.size() - at);
    GEAR_CUDA_TRY(cudaMemcpyAsync(entries.data() + (position - begin_), ring_.get() + at,
                                  run * sizeof(UpdateEntry), cudaMemcpyDeviceToHost, stream_));
    position += run;
  }
  stream_.synchronize();
  release(end_);
  std::erase_if(entries, [](const UpdateEntry& entry) { return entry.id < 0; });
  return entries;
}

void UpdateIntake::raise_failed() {
  Failure* oldest = nullptr;
  for (uint64_t i = 0; i < kCalls; ++i) {
    Failure& failure = failures_[i];
    // The GPU writes the number after the rest.
    if (std::atomic_ref(failure.call).load(std::memory_order_acquire) == 0) {
      continue;
    }
    if (oldest == nullptr || failure.call < oldest->call) {
      oldest = &failure;
    }
  }
  if (oldest == nullptr) {
    return;
  }
  const Failure failure = *oldest;
  oldest->call = 0;
  throw base::InvalidArgument(
      base::cat(update_refusal(failure.id, failure.priority, failure.position), " (update ",
                number_ - failure.call + 1, " calls ago, on GPU ", device_, ")"));
}

}  // namespace gear::store

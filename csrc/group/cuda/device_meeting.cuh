#pragma once

#include "group/cuda/device_meeting.h"

// How kernels come to a meeting. Few blocks: each waits in its place, which other ranks' kernels
// may need where ranks share a GPU.

namespace gear::group {

constexpr unsigned kMostMeetingBlocks = 128;  ///< of a kernel that meets before it works

namespace meeting {

constexpr unsigned kWarp = 32;
constexpr unsigned kWholeWarp = 0xffffffffU;
static_assert(kMostGpuRanks <= kWarp, "a lane a rank");
static_assert(SaidAt::kNoted == kWarp, "a lane a word");
constexpr unsigned kInfinity = 0x7f800000;
/// Looks at the mailbox between two looks at the host's word, which lies over PCIe.
constexpr unsigned kLooks = 1024;

__device__ inline void store_release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ inline uint64_t load_acquire(const uint64_t* word) {
  uint64_t value = 0;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

__device__ inline uint64_t nanoseconds() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Whether rank `from` came before the time was over.
__device__ inline bool wait_for(const Meeting& meeting, const Mailbox& own, uint32_t from) {
  const uint64_t start = nanoseconds();
  for (unsigned looks = 1; load_acquire(own.came + from) < meeting.number; ++looks) {
    if (looks % kLooks == 0 && (*static_cast<const volatile uint32_t*>(meeting.give_up) != 0 ||
                                nanoseconds() - start > meeting.timeout_ns)) {
      return false;
    }
  }
  return true;
}

/// By a whole warp, one of the kernel: lane r tells rank r, and waits for it.
__device__ inline void come(const Meeting& meeting) {
  const uint32_t r = threadIdx.x % kWarp;
  const SaidAt& said = meeting.said;
  Mailbox& own = *meeting.mailboxes[meeting.rank];
  const Said words{
      said.total != nullptr ? *said.total : 0, said.scale != nullptr ? said.scale->shift : 0,
      said.largest != nullptr ? *said.largest : 0.0F, said.least != nullptr ? *said.least : 0.0F};
  if (r < meeting.size) {
    Mailbox& theirs = *meeting.mailboxes[r];
    theirs.said[meeting.number % 2][meeting.rank] = words;
    __threadfence_system();  // and what this GPU's earlier kernels wrote into theirs
    store_release(theirs.came + meeting.rank, meeting.number);
  }
  __syncwarp();
  if (said.noted != nullptr) {  // on its way while the others are waited for
    said.noted[r] = said.to_note[r];
    said.to_note[r] = 0;
  }
  bool came = true;
  float largest = 0;
  if (r < meeting.size) {
    came = own.lost == 0 && wait_for(meeting, own, r);
    largest = static_cast<const volatile Said&>(own.said[meeting.number % 2][r]).largest;
  }
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, step));
  }
  __threadfence_system();  // the notes are there before the host's word
  const unsigned missing = __ballot_sync(kWholeWarp, !came);
  if (r != 0) {
    return;
  }
  if (said.largest != nullptr) {
    *said.largest = largest;
  }
  if (said.least != nullptr) {
    *said.least = __uint_as_float(kInfinity);
  }
  if (missing == 0) {
    *static_cast<volatile uint64_t*>(meeting.met) = meeting.number;
  } else if (own.lost == 0) {
    *static_cast<volatile uint32_t*>(&own.lost) = missing;
    *static_cast<volatile uint32_t*>(meeting.missing) = missing;
  }
}

/// By the blocks that do not come(): the first warp waits until those of all ranks did, or until
/// some are given up.
__device__ inline void wait(const Meeting& meeting) {
  const Mailbox& own = *meeting.mailboxes[meeting.rank];
  const uint32_t r = threadIdx.x;
  while (r < meeting.size && load_acquire(own.came + r) < meeting.number &&
         static_cast<const volatile Mailbox&>(own).lost == 0) {
  }
}

}  // namespace meeting

/// By all threads of all blocks of a kernel; returns when all ranks' have come. None for number 0.
__device__ inline void come_to(const Meeting& meeting) {
  if (meeting.number == 0) {
    return;
  }
  if (blockIdx.x == 0 && blockIdx.y == 0) {
    if (threadIdx.x < meeting::kWarp) {
      meeting::come(meeting);
    }
  } else {
    meeting::wait(meeting);
  }
  __syncthreads();
}

}  // namespace gear::group

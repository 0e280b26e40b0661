#pragma once

#include "group/cuda/device_shares.h"

namespace gear::group {

/// What the ranks offer, end to end by rank, in a block's shared memory.
struct OfferedRanges {
  uint64_t begin[kMostGpuRanks + 1];
  bool too_heavy;  ///< they add up to 2^63 or more: nothing is drawn

  /// By the whole block; all of it may be read after the next __syncthreads().
  __device__ void make(const OfferedTotals& totals, uint32_t size) {
    if (threadIdx.x != 0) {
      return;
    }
    constexpr uint64_t kLimit = uint64_t{1} << 63;
    uint64_t sum = 0;
    too_heavy = false;
    for (uint32_t r = 0; r < kMostGpuRanks; ++r) {
      begin[r] = sum;
      if (r < size) {
        const uint64_t total = totals.heard != nullptr ? totals.heard[r].total : totals.known[r];
        too_heavy = too_heavy || total >= kLimit - sum;
        sum += total;
      }
    }
    begin[kMostGpuRanks] = sum;
  }

  __device__ uint64_t all() const { return begin[kMostGpuRanks]; }

  /// Of a target below all().
  __device__ uint32_t owner_of(uint64_t target, uint32_t size) const {
    uint32_t owner = 0;
    for (uint32_t r = 1; r < size; ++r) {
      owner += target >= begin[r] ? 1 : 0;
    }
    return owner;
  }
};

}  // namespace gear::group

#pragma once

#include "group/cuda/device_shares.h"
#include "select/group/rank_total.h"

namespace gear::group {

/// What the ranks offer, end to end by rank, in a block's shared memory.
struct OfferedRanges {
  uint64_t begin[kMostGpuRanks + 1];
  uint64_t places;  ///< of the own range, in the rank's own units: see select::OwnDraws
  int32_t finer;    ///< of which 2^finer make one of all ranks'

  /// By the whole block; all of it may be read after the next __syncthreads().
  __device__ void make(const OfferedTotals& totals, uint32_t rank, uint32_t size) {
    if (threadIdx.x != 0) {
      return;
    }
    const auto offered = [&](uint32_t r) -> select::RankTotal {
      return totals.heard != nullptr
                 ? select::RankTotal{totals.heard[r].total, totals.heard[r].shift}
                 : select::RankTotal{totals.known[r], 0};
    };
    const int32_t shift = select::common_shift(size, offered);
    uint64_t sum = 0;
    for (uint32_t r = 0; r < kMostGpuRanks; ++r) {
      begin[r] = sum;
      if (r < size && offered(r).total > 0) {
        sum += select::in_units(offered(r), shift);
      }
    }
    begin[kMostGpuRanks] = sum;
    places = offered(rank).total;
    finer = places > 0 ? offered(rank).shift - shift : 0;
  }

  __device__ uint64_t all() const { return begin[kMostGpuRanks]; }
  /// From weights in the rank's own units to probabilities.
  __device__ double scale() const {
    constexpr int32_t kMost = 1000;
    return all() > 0 ? 1.0 / static_cast<double>(all()) * store::power_of_two(-min(finer, kMost))
                     : 0.0;
  }

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

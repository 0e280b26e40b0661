#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace gear::select {

/// What a rank's shard offers to draws over all ranks: so much, in units of 2^-shift. Where all
/// have seen the same largest priority, the units of their weights are one. Hosts see to that
/// before they offer; GPUs hear of a larger one with the totals, and follow it
/// with the next update or append.
struct RankTotal {
  uint64_t total;
  int32_t shift;
};

/// The same in units of 2^-shift, which are as large or larger: at least one, if it is anything.
GEAR_HD inline uint64_t in_units(const RankTotal& whole, int32_t shift) {
  const int32_t by = whole.shift - shift;
  const uint64_t total = whole.total >> (by < 63 ? by : 63);
  return total > 0 || whole.total == 0 ? total : 1;
}

/// The shift of the smallest units that are as large as those of every rank and in which all offers
/// add up to less than 2^63. `total_of(r)`: what rank r offers.
template <class TotalOf>
GEAR_HD int32_t common_shift(uint32_t ranks, TotalOf total_of) {
  constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;
  int32_t shift = INT32_MAX;
  for (uint32_t r = 0; r < ranks; ++r) {
    const RankTotal one = total_of(r);
    shift = one.total > 0 && one.shift < shift ? one.shift : shift;
  }
  for (;; --shift) {
    uint64_t sum = 0;
    bool fits = true;
    for (uint32_t r = 0; r < ranks && fits; ++r) {
      const RankTotal one = total_of(r);
      const uint64_t more = one.total > 0 ? in_units(one, shift) : 0;
      fits = more <= kMost - sum;
      sum += more;
    }
    if (fits) {
      return shift;
    }
  }
}

}  // namespace gear::select

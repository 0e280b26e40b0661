#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "store/episode.h"

/// Sums of priorities that are exact and do not depend on the order of updates: whole numbers of
/// 2^-shift, of which the largest priority has 95 bits, so that 2^32 of them fit. A priority is
/// itself there down to 2^-71 of the largest, and what is below 2^-95 of it counts as 0.

namespace gear::store {

/// Of 0, which says that there is none yet, that of 1.
inline int32_t sum_shift(float largest) { return 94 - (largest > 0 ? std::ilogb(largest) : 0); }

/// A priority up to the largest; of a larger one, which moves the shift, some number.
inline PrioritySum in_sum(float priority, int32_t shift) {
  const uint32_t bits = std::bit_cast<uint32_t>(priority) & 0x7fffffffU;
  const uint32_t exponent = bits >> 23;
  const uint32_t digits = (bits & 0x7fffffU) | (exponent > 0 ? 0x800000U : 0U);
  const int32_t up = static_cast<int32_t>(exponent > 0 ? exponent : 1) - 150 + shift;
  constexpr int32_t kMost = 100;
  if (up >= 0) {
    return PrioritySum{digits} << (up < kMost ? up : kMost);
  }
  return up > -32 ? digits >> -up : 0;
}

inline PrioritySum summed(std::span<const float> priorities, int32_t shift) {
  PrioritySum sum = 0;
  for (const float priority : priorities) {
    sum += in_sum(priority, shift);
  }
  return sum;
}

inline double mean_of(PrioritySum sum, uint64_t count, int32_t shift) {
  return std::ldexp(static_cast<double>(sum), -shift) / static_cast<double>(count);
}

}  // namespace gear::store

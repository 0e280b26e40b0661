#pragma once

#include "base/host_device.h"
#include "base/numbers/half.h"

namespace gear::plan {

// How a Fold adds, the same to the bit on the host and on a GPU, wherever the runs of an item are
// cut: in float32, every product and every sum rounded, never fused, in the order of the steps.
//
//   sum = 0, power = 1
//   for k = 0, 1, ... n - 1:  where step anchor + k is there, sum = folded(sum, power, its value)
//                             power = next_power(power, factor)

GEAR_HD inline float next_power(float power, float factor) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(power, factor);
#else
  return power * factor;
#endif
}

/// sum + power * value. What is not a number becomes the one NaN 0x7FC00000: processors differ in
/// the bits of theirs.
GEAR_HD inline float folded(float sum, float power, float value) {
#if defined(__CUDA_ARCH__)
  const float next = __fadd_rn(sum, __fmul_rn(power, value));
#else
  const float next = sum + power * value;
#endif
  return base::is_nan_bits(base::float_bits(next)) ? base::float_of(0x7FC00000U) : next;
}

}  // namespace gear::plan

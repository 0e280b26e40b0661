#pragma once

#include <bit>
#include <cstdint>

#include "base/host_device.h"

namespace gear::base {

/// Narrow floating-point types by their bits, with the same result on CPU and GPU: round to
/// nearest, ties to even; too large becomes infinity; a NaN stays one, quiet, with the upper bits
/// of its payload, as NumPy's astype does.

GEAR_HD inline bool is_nan_bits(uint32_t float_bits) {
  return (float_bits & 0x7FFFFFFFU) > 0x7F800000U;
}

GEAR_HD inline uint32_t float_bits(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<uint32_t>(value);
#endif
}

GEAR_HD inline float float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// The bits of the bfloat16 nearest to the float of these bits.
GEAR_HD inline uint16_t to_bf16(uint32_t bits) {
  if (is_nan_bits(bits)) {
    return static_cast<uint16_t>(bits >> 16 | 0x40U);
  }
  return static_cast<uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

/// The bits of the float16 nearest to the float of these bits.
GEAR_HD inline uint16_t to_f16(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  uint32_t half;
  if (magnitude > 0x7F800000U) {
    half = 0x7E00U | (magnitude >> 13 & 0x3FFU);
  } else if (magnitude >= 0x47800000U) {  // 2^16 and up: infinity, as are 65520 and up below
    half = 0x7C00U;
  } else if (magnitude < 0x38800000U) {
    // Subnormal, below 2^-14: adding 1/2 leaves the result, rounded, in the low bits.
    half = float_bits(float_of(magnitude) + 0.5F) - 0x3F000000U;
  } else {
    half = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

}  // namespace gear::base

#pragma once

#include <cstdint>
#include <string_view>

namespace gear::base {

/// What a loop that has several forms may use; each level includes those before it. Checksums are
/// apart: they take SSE 4.2 wherever it is.
enum class Simd : uint8_t {
  kNone,    ///< what every processor of the architecture has
  kAvx2,    ///< AVX2 and popcnt
  kAvx512,  ///< AVX-512 F, DQ and VL
};

/// What this processor has, up to what GEAR_SIMD allows. All forms give the same bits. The first
/// call throws InvalidArgument for another word than "none", "avx2" and "avx512".
Simd simd();

/// "none", "avx2", "avx512".
std::string_view simd_name(Simd level);

}  // namespace gear::base

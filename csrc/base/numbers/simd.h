#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

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

/// The widest form of a function that simd() lets run, of those that there are; GEAR_X86 names one
/// that no other architecture compiles:
///
///     static const auto add = base::pick(add_portable, GEAR_X86(add_avx2), GEAR_X86(add_avx512));
///
/// By hand: target_clones needs an ifunc, whose resolver runs before a sanitizer does.
template <class Form>
Form pick(Form portable, std::type_identity_t<Form> avx2,
          std::type_identity_t<Form> avx512 = nullptr) {
  if (avx512 != nullptr && simd() >= Simd::kAvx512) {
    return avx512;
  }
  return avx2 != nullptr && simd() >= Simd::kAvx2 ? avx2 : portable;
}

#if defined(__x86_64__)
#define GEAR_X86(form) form
#else
#define GEAR_X86(form) nullptr
#endif

}  // namespace gear::base

#include "base/numbers/simd.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/environment.h"
#include "base/errors.h"

namespace gear::base {
namespace {

Simd of_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("popcnt")) {
    return Simd::kNone;
  }
  const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  return wide ? Simd::kAvx512 : Simd::kAvx2;
#else
  return Simd::kNone;
#endif
}

Simd allowed() {
  const std::optional<std::string> text = env_string("GEAR_SIMD");
  if (!text) {
    return Simd::kAvx512;
  }
  for (const Simd level : {Simd::kNone, Simd::kAvx2, Simd::kAvx512}) {
    if (*text == simd_name(level)) {
      return level;
    }
  }
  throw InvalidArgument(cat("[environment] GEAR_SIMD='", *text,
                            "' is not accepted: set none, avx2 or avx512, or unset it"));
}

}  // namespace

Simd simd() {
  static const Simd level = std::min(of_processor(), allowed());
  return level;
}

std::string_view simd_name(Simd level) {
  switch (level) {
    case Simd::kAvx2:
      return "avx2";
    case Simd::kAvx512:
      return "avx512";
    default:
      return "none";
  }
}

}  // namespace gear::base

#include "plan/cast.h"

#include <cmath>
#include <tuple>

#include "base/errors.h"
#include "plan/output.h"

namespace gear::plan {
namespace {

template <Cast cast>
void cast_all(const std::byte* source, std::byte* target, uint64_t count, float scale) {
  constexpr bool kFromF32 = cast == Cast::kF32ToF16 || cast == Cast::kF32ToBF16;
  constexpr uint64_t kSourceBytes = kFromF32 ? 4 : 1;
  constexpr uint64_t kTargetBytes = cast == Cast::kU8ToF32 ? 4 : 2;
  for (uint64_t i = 0; i < count; ++i) {
    cast_value<cast>(source + i * kSourceBytes, target + i * kTargetBytes, scale);
  }
}

}  // namespace

Cast cast_of(base::DType stored, const StepColumn& wanted, std::string_view output,
             std::string_view column) {
  const base::DType dtype = wanted.dtype.value_or(stored);
  const auto refuse = [&](auto... why) {
    throw base::InvalidArgument(base::cat("[loader] output '", output, "': ", why...));
  };
  if (!std::isfinite(wanted.scale) || wanted.scale == 0.0F) {
    refuse("scale ", wanted.scale, ": a finite number other than 0 is allowed");
  }
  if (dtype == stored) {
    if (wanted.scale != 1.0F) {
      refuse("scale ", wanted.scale, " of ", base::kDTypes.name(stored), " column '", column,
             "' without a conversion: give a dtype to convert to, or scale=1");
    }
    return Cast::kNone;
  }
  constexpr std::tuple<base::DType, base::DType, Cast> kOffered[] = {
      {base::DType::kU8, base::DType::kF16, Cast::kU8ToF16},
      {base::DType::kU8, base::DType::kBF16, Cast::kU8ToBF16},
      {base::DType::kU8, base::DType::kF32, Cast::kU8ToF32},
      {base::DType::kF32, base::DType::kF16, Cast::kF32ToF16},
      {base::DType::kF32, base::DType::kBF16, Cast::kF32ToBF16}};
  for (const auto& [from, to, cast] : kOffered) {
    if (stored == from && dtype == to) {
      return cast;
    }
  }
  refuse("column '", column, "' is ", base::kDTypes.name(stored), ", dtype ",
         base::kDTypes.name(dtype),
         " is not offered: uint8 may become float16, bfloat16 or float32, float32 may become "
         "float16 or bfloat16; convert others after the batch is delivered");
  return Cast::kNone;
}

void cast_values(Cast cast, const std::byte* source, std::byte* target, uint64_t count,
                 float scale) {
  switch (cast) {
    case Cast::kU8ToF16:
      return cast_all<Cast::kU8ToF16>(source, target, count, scale);
    case Cast::kU8ToBF16:
      return cast_all<Cast::kU8ToBF16>(source, target, count, scale);
    case Cast::kU8ToF32:
      return cast_all<Cast::kU8ToF32>(source, target, count, scale);
    case Cast::kF32ToF16:
      return cast_all<Cast::kF32ToF16>(source, target, count, scale);
    case Cast::kF32ToBF16:
      return cast_all<Cast::kF32ToBF16>(source, target, count, scale);
    case Cast::kNone:
      break;
  }
  GEAR_CHECK(cast != Cast::kNone);
}

}  // namespace gear::plan

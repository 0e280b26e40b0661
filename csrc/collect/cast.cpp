#include "collect/cast.h"

#include <cmath>

#include "base/errors.h"
#include "collect/window.h"

namespace gear::collect {

Cast cast_of(base::DType stored, const Output& output, std::string_view column) {
  using base::DType;
  const DType wanted = output.dtype.value_or(stored);
  const auto refuse = [&](auto... why) {
    throw base::InvalidArgument(base::cat("[collect] output '", output.name, "': ", why...));
  };
  if (!std::isfinite(output.scale) || output.scale == 0.0F) {
    refuse("scale ", output.scale, ": a finite number other than 0 is allowed");
  }
  if (wanted == stored) {
    if (output.scale != 1.0F) {
      refuse("scale ", output.scale, " of ", base::dtype_name(stored), " column '", column,
             "' without a conversion: give a dtype to convert to, or scale=1");
    }
    return Cast::kNone;
  }
  if (stored == DType::kU8 && wanted == DType::kF16) return Cast::kU8ToF16;
  if (stored == DType::kU8 && wanted == DType::kBF16) return Cast::kU8ToBF16;
  if (stored == DType::kU8 && wanted == DType::kF32) return Cast::kU8ToF32;
  if (stored == DType::kF32 && wanted == DType::kF16) return Cast::kF32ToF16;
  if (stored == DType::kF32 && wanted == DType::kBF16) return Cast::kF32ToBF16;
  refuse("column '", column, "' is ", base::dtype_name(stored), ", dtype ",
         base::dtype_name(wanted),
         " is not offered: uint8 may become float16, bfloat16 or float32, float32 may become "
         "float16 or bfloat16; convert others after the batch is delivered");
  return Cast::kNone;
}

}  // namespace gear::collect

#pragma once

#include <cstddef>
#include <string_view>

#include "base/dtype.h"
#include "base/host_device.h"
#include "base/numbers/half.h"

namespace gear::plan {

struct StepColumn;

/// What happens to the elements of an output between the store and the batch. Anything but kNone
/// multiplies by the output's scale in float32, then rounds to the nearest, ties to even.
enum class Cast : uint8_t { kNone, kU8ToF16, kU8ToBF16, kU8ToF32, kF32ToF16, kF32ToBF16 };

/// The conversion that `wanted`, an output called `output`, asks for of a column of type `stored`.
/// Throws InvalidArgument, with what is offered, for any other, for a scale without a conversion,
/// and for a scale that is 0 or not finite.
Cast cast_of(base::DType stored, const StepColumn& wanted, std::string_view output,
             std::string_view column);

/// The bits of value * scale in float32. A NaN keeps its payload: processors differ in what they
/// make of it.
GEAR_HD inline uint32_t scaled(float value, float scale) {
  const uint32_t bits = base::float_bits(value);
  return base::is_nan_bits(bits) ? bits | 0x400000U : base::float_bits(value * scale);
}

/// `cast` of one element at `source` to `target`, which are aligned to their elements.
template <Cast cast>
GEAR_HD inline void cast_value(const void* source, void* target, float scale) {
  uint32_t bits;
  if constexpr (cast == Cast::kF32ToF16 || cast == Cast::kF32ToBF16) {
    bits = scaled(*static_cast<const float*>(source), scale);
  } else {
    bits = scaled(static_cast<float>(*static_cast<const uint8_t*>(source)), scale);
  }
  if constexpr (cast == Cast::kU8ToF32) {
    *static_cast<uint32_t*>(target) = bits;
  } else if constexpr (cast == Cast::kU8ToF16 || cast == Cast::kF32ToF16) {
    *static_cast<uint16_t*>(target) = base::to_f16(bits);
  } else {
    *static_cast<uint16_t*>(target) = base::to_bf16(bits);
  }
}

/// `count` elements, on the CPU.
void cast_values(Cast cast, const std::byte* source, std::byte* target, uint64_t count,
                 float scale);

}  // namespace gear::plan

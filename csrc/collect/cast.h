#pragma once

#include <string_view>

#include "base/dtype.h"
#include "base/half.h"

namespace gear::collect {

struct Output;

// What happens to the elements of an output between the store and the batch. Anything but kNone
// multiplies by the output's scale in float32, then rounds to the nearest, ties to even.
enum class Cast : uint8_t { kNone, kU8ToF16, kU8ToBF16, kU8ToF32, kF32ToF16, kF32ToBF16 };

// The conversion that `output` asks for of a column of type `stored`. Throws InvalidArgument, with
// what is offered, for any other, for a scale without a conversion, and for a scale that is 0 or not
// finite.
Cast cast_of(base::DType stored, const Output& output, std::string_view column);

// The bits of value * scale in float32. A NaN keeps its payload: processors differ in what they
// make of it.
GEAR_HD inline uint32_t scaled(float value, float scale) {
  const uint32_t bits = base::float_bits(value);
  return base::is_nan_bits(bits) ? bits | 0x400000U : base::float_bits(value * scale);
}

}  // namespace gear::collect

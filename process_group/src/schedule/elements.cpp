#include "schedule/elements.h"

#include <bit>
#include <type_traits>

#include "base/errors.h"
#include "base/numbers/half.h"

namespace gear::process_group {
namespace {

// Stored as 16 bits, computed with as float.
struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
struct Bool {
  uint8_t byte;
};

inline float from_f16(uint16_t bits) {
  // The exponent moves from bias 15 to 127 by a multiplication, which subnormals survive.
  const uint32_t magnitude = (bits & 0x7FFFU) << 13;
  const float scaled = base::float_of(magnitude) * base::float_of(0x77800000U);  // 2^112
  uint32_t result = base::float_bits(scaled);
  result = (bits & 0x7C00U) == 0x7C00U ? magnitude | 0x7F800000U : result;
  return base::float_of(result | (bits & 0x8000U) << 16);
}

template <class T>
inline auto load(const T& stored) {
  if constexpr (std::is_same_v<T, F16>) {
    return from_f16(stored.bits);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return base::float_of(static_cast<uint32_t>(stored.bits) << 16);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return static_cast<uint8_t>(stored.byte != 0);
  } else {
    return stored;
  }
}

template <class T, class Value>
inline T store(Value value) {
  if constexpr (std::is_same_v<T, F16>) {
    return {base::to_f16(base::float_bits(value))};
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return {base::to_bf16(base::float_bits(value))};
  } else if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<uint8_t>(value)};
  } else {
    return static_cast<T>(value);
  }
}

// Signed integers wrap around, as tensors of torch do.
template <class Value>
using Wrapping = typename std::conditional_t<std::is_integral_v<Value>, std::make_unsigned<Value>,
                                             std::type_identity<Value>>::type;

template <Reduction R, class Value>
inline Value applied(Value left, Value right) {
  using W = Wrapping<Value>;
  if constexpr (R == Reduction::kSum) {
    return static_cast<Value>(static_cast<W>(left) + static_cast<W>(right));
  } else if constexpr (R == Reduction::kProduct) {
    if constexpr (sizeof(Value) < sizeof(int)) {  // unsigned short would become int, and overflow
      return static_cast<Value>(static_cast<uint32_t>(left) * static_cast<uint32_t>(right));
    } else {
      return static_cast<Value>(static_cast<W>(left) * static_cast<W>(right));
    }
  } else if constexpr (R == Reduction::kMin) {
    return left < right || left != left ? left : right;  // NOLINT: a NaN differs from itself
  } else if constexpr (R == Reduction::kMax) {
    return left > right || left != left ? left : right;  // NOLINT
  } else if constexpr (R == Reduction::kAnd) {
    return static_cast<Value>(left & right);
  } else if constexpr (R == Reduction::kOr) {
    return static_cast<Value>(left | right);
  } else {
    return static_cast<Value>(left ^ right);
  }
}

template <Reduction R, class T>
void reduce_all(std::byte* into, const std::byte* left, const std::byte* right, uint64_t count) {
  auto* const to = reinterpret_cast<T*>(into);
  const auto* const a = reinterpret_cast<const T*>(left);
  const auto* const b = reinterpret_cast<const T*>(right);
  for (uint64_t i = 0; i < count; ++i) {
    to[i] = store<T>(applied<R>(load(a[i]), load(b[i])));
  }
}

template <class T>
void reduce_bool(Reduction reduction, std::byte* into, const std::byte* left,
                 const std::byte* right, uint64_t count) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kMax:
    case Reduction::kOr:
      return reduce_all<Reduction::kOr, T>(into, left, right, count);
    case Reduction::kProduct:
    case Reduction::kMin:
    case Reduction::kAnd:
      return reduce_all<Reduction::kAnd, T>(into, left, right, count);
    case Reduction::kXor:
      return reduce_all<Reduction::kXor, T>(into, left, right, count);
  }
}

template <class T>
void reduce_as(Reduction reduction, std::byte* into, const std::byte* left, const std::byte* right,
               uint64_t count) {
  switch (reduction) {
    case Reduction::kSum:
      return reduce_all<Reduction::kSum, T>(into, left, right, count);
    case Reduction::kProduct:
      return reduce_all<Reduction::kProduct, T>(into, left, right, count);
    case Reduction::kMin:
      return reduce_all<Reduction::kMin, T>(into, left, right, count);
    case Reduction::kMax:
      return reduce_all<Reduction::kMax, T>(into, left, right, count);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (reduction) {
      case Reduction::kAnd:
        return reduce_all<Reduction::kAnd, T>(into, left, right, count);
      case Reduction::kOr:
        return reduce_all<Reduction::kOr, T>(into, left, right, count);
      default:
        return reduce_all<Reduction::kXor, T>(into, left, right, count);
    }
  }
  GEAR_CHECK(false);
}

template <class T>
void divide_all(std::byte* values, uint64_t count, int64_t divisor) {
  auto* const all = reinterpret_cast<T*>(values);
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = load(all[i]);
    if constexpr (std::is_floating_point_v<decltype(load(all[i]))>) {
      all[i] = store<T>(value / static_cast<decltype(load(all[i]))>(divisor));
    } else {
      all[i] = store<T>(static_cast<int64_t>(value) / divisor);
    }
  }
}

// Calls `call` with a value of the C++ type of `element`.
template <class Call>
void with_type(Element element, const Call& call) {
  switch (element) {
    case Element::kBool:
      return call(Bool{});
    case Element::kU8:
      return call(uint8_t{});
    case Element::kI8:
      return call(int8_t{});
    case Element::kI16:
      return call(int16_t{});
    case Element::kI32:
      return call(int32_t{});
    case Element::kI64:
      return call(int64_t{});
    case Element::kF16:
      return call(F16{});
    case Element::kBf16:
      return call(Bf16{});
    case Element::kF32:
      return call(float{});
    case Element::kF64:
      return call(double{});
  }
}

template <class T>
void narrow_as(const float* from, T* to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    to[i] = store<T>(from[i]);
  }
}

template <class T>
void widen_as(const T* from, float* to, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    to[i] = load(from[i]);
  }
}

}  // namespace

uint64_t element_bytes(Element element) {
  uint64_t bytes = 0;
  with_type(element, [&](auto value) { bytes = sizeof(value); });
  return bytes;
}

std::string_view reduction_name(Reduction reduction) {
  constexpr std::string_view kNames[] = {"SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return kNames[static_cast<size_t>(reduction)];
}

bool can_reduce(Element element, Reduction reduction) {
  return reduction < Reduction::kAnd || element < Element::kF16;
}

void combine(Element element, Reduction reduction, std::byte* into, const std::byte* left,
             const std::byte* right, uint64_t count) {
  with_type(element, [&](auto value) {
    using T = decltype(value);
    if constexpr (std::is_same_v<T, Bool>) {
      reduce_bool<T>(reduction, into, left, right, count);
    } else {
      reduce_as<T>(reduction, into, left, right, count);
    }
  });
}

void divide(Element element, std::byte* values, uint64_t count, int64_t divisor) {
  with_type(element, [&](auto value) { divide_all<decltype(value)>(values, count, divisor); });
}

void narrow(Compression compression, const std::byte* from, std::byte* to, uint64_t count) {
  const auto* const floats = reinterpret_cast<const float*>(from);
  if (compression == Compression::kBf16) {
    narrow_as(floats, reinterpret_cast<Bf16*>(to), count);
  } else {
    narrow_as(floats, reinterpret_cast<F16*>(to), count);
  }
}

void widen(Compression compression, const std::byte* from, std::byte* to, uint64_t count) {
  auto* const floats = reinterpret_cast<float*>(to);
  if (compression == Compression::kBf16) {
    widen_as(reinterpret_cast<const Bf16*>(from), floats, count);
  } else {
    widen_as(reinterpret_cast<const F16*>(from), floats, count);
  }
}

void round_to(Compression compression, std::byte* values, uint64_t count) {
  auto* const floats = reinterpret_cast<float*>(values);
  for (uint64_t i = 0; i < count; ++i) {
    floats[i] = compression == Compression::kBf16 ? load(store<Bf16>(floats[i]))
                                                  : load(store<F16>(floats[i]));
  }
}

}  // namespace gear::process_group

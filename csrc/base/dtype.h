#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gear::base {

/// Element type of a column. The values are part of the on-disk format and of the schema hash:
/// never renumber, only append.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
};

/// How many values DType has; they are 0 .. kNumDTypes - 1.
inline constexpr size_t kNumDTypes = 13;

/// Bytes of one element: 1, 2, 4 or 8.
size_t dtype_bytes(DType dtype);

/// NumPy's name of the type ("float32", "bool"), and "bfloat16", which NumPy lacks.
std::string_view dtype_name(DType dtype);

/// The inverse of dtype_name. Throws InvalidArgument that lists the names allowed.
DType parse_dtype(std::string_view name);

}  // namespace gear::base

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/names.h"

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

/// NumPy's names of the types, and "bfloat16", which NumPy lacks.
inline constexpr Names<DType, kNumDTypes> kDTypes{
    "[schema] dtype",
    {"bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16",
     "bfloat16", "float32", "float64"}};

}  // namespace gear::base

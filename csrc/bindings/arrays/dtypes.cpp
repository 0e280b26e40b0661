#include "bindings/arrays/dtypes.h"

#include <array>
#include <string>

#include "base/errors.h"

namespace gear::bindings {

const py::dtype& numpy_dtype(base::DType dtype) {
  static auto& dtypes = *new std::array<py::dtype, base::kNumDTypes>();
  py::dtype& entry = dtypes[static_cast<size_t>(dtype)];
  if (!entry) {
    entry =
        py::dtype(std::string(dtype == base::DType::kBF16 ? "uint16" : base::kDTypes.name(dtype)));
  }
  return entry;
}

DLDataType dlpack_dtype(base::DType dtype) {
  const auto bits = static_cast<uint8_t>(8 * base::dtype_bytes(dtype));
  switch (dtype) {
    case base::DType::kBool:
      return {kDLBool, bits, 1};
    case base::DType::kU8:
    case base::DType::kU16:
    case base::DType::kU32:
    case base::DType::kU64:
      return {kDLUInt, bits, 1};
    case base::DType::kI8:
    case base::DType::kI16:
    case base::DType::kI32:
    case base::DType::kI64:
      return {kDLInt, bits, 1};
    case base::DType::kBF16:
      return {kDLBfloat, bits, 1};
    case base::DType::kF16:
    case base::DType::kF32:
    case base::DType::kF64:
      return {kDLFloat, bits, 1};
  }
  GEAR_CHECK(!"every dtype has a DLPack code");
  return {};
}

}  // namespace gear::bindings

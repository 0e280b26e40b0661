#include "base/dtype.h"

#include <array>

#include "base/errors.h"

namespace gear::base {

size_t dtype_bytes(DType dtype) {
  constexpr std::array<size_t, kNumDTypes> kBytes = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  static_assert(static_cast<size_t>(DType::kF64) + 1 == kNumDTypes);
  const auto index = static_cast<size_t>(dtype);
  GEAR_CHECK(index < kBytes.size());
  return kBytes[index];
}

}  // namespace gear::base

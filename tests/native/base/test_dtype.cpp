#include <doctest/doctest.h>

#include <string>

#include "base/dtype.h"
#include "base/errors.h"
#include "expect_message.h"

using gear::base::DType;
using namespace gear::base;

TEST_CASE("names and sizes of dtypes match NumPy and round trip") {
  for (size_t i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    CHECK(kDTypes.parse(kDTypes.name(dtype)) == dtype);
  }
  CHECK(dtype_bytes(DType::kBool) == 1);
  CHECK(dtype_bytes(DType::kI16) == 2);
  CHECK(dtype_bytes(DType::kBF16) == 2);
  CHECK(dtype_bytes(DType::kF32) == 4);
  CHECK(dtype_bytes(DType::kF64) == 8);
  CHECK(kDTypes.name(DType::kU8) == "uint8");
  CHECK(kDTypes.name(DType::kBF16) == "bfloat16");
}

TEST_CASE("the stored values of dtypes never change") {
  CHECK(static_cast<int>(DType::kBool) == 0);
  CHECK(static_cast<int>(DType::kU64) == 7);
  CHECK(static_cast<int>(DType::kF16) == 9);
  CHECK(static_cast<int>(DType::kF64) == 12);
}

TEST_CASE("an unknown dtype is refused with the names allowed") {
  gear::testing::expect_message<gear::base::InvalidArgument>(
      [] { kDTypes.parse("float31"); }, "'float31'", "'bool', 'uint8'",
      "'bfloat16', 'float32' and 'float64' are allowed");
  CHECK_THROWS_AS(kDTypes.parse(""), gear::base::InvalidArgument);
  CHECK_THROWS_AS(dtype_bytes(static_cast<DType>(13)), std::logic_error);
}

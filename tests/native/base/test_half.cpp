#include <doctest/doctest.h>

#include <cmath>

#include "base/numbers/half.h"
#include "base/numbers/philox.h"

using namespace gear::base;

namespace {

double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

double bf16_value(uint16_t bits) { return float_of(uint32_t{bits} << 16); }

// The result is one of the two neighbours of `value`, the nearer one, the even one of equals.
template <class Value>
void expect_nearest(double value, uint16_t result, uint16_t infinity, Value value_of) {
  const uint16_t magnitude = result & 0x7FFF;
  const double got = std::abs(value_of(result));
  const double wanted = std::abs(value);
  REQUIRE(std::signbit(value) == ((result & 0x8000) != 0));
  if (magnitude < infinity - 1) {
    const double above = value_of(static_cast<uint16_t>(magnitude + 1));
    REQUIRE(
        (wanted - got < above - wanted || (wanted - got == above - wanted && magnitude % 2 == 0)));
  }
  if (magnitude > 0 && magnitude < infinity) {
    const double below = value_of(static_cast<uint16_t>(magnitude - 1));
    REQUIRE(
        (got - wanted < wanted - below || (got - wanted == wanted - below && magnitude % 2 == 0)));
  }
}

}  // namespace

TEST_CASE("every float16 and bfloat16 is its own nearest") {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    REQUIRE(to_f16(float_bits(static_cast<float>(f16_value(half)))) == half);
  }
  for (uint32_t bits = 0; bits <= 0x7F80; ++bits) {
    REQUIRE(to_bf16(bits << 16) == bits);
  }
}

TEST_CASE("floats become their nearest neighbour, ties the even one") {
  for (uint64_t round = 0; round < 400000; ++round) {
    auto bits = static_cast<uint32_t>(philox(3, 0, round).lo);
    if (round % 2 == 0) {
      bits &= 0xFFFFF000U | (round % 4 == 0 ? 0x8000U : 0);  // ties, near ties
    }
    if (round % 8 == 1) {
      bits = (bits & 0x80007FFFU) | 0x3F800000U;
    }
    const float value = float_of(bits);
    if (!std::isfinite(value)) {
      continue;
    }
    if (std::abs(value) < 65520.0F) {
      expect_nearest(value, to_f16(bits), 0x7C00, f16_value);
    }
    if (std::abs(value) < 3.39e38F) {
      expect_nearest(value, to_bf16(bits), 0x7F80, bf16_value);
    }
  }
}

TEST_CASE("what is too large is infinite, and no number stays none") {
  CHECK(to_f16(float_bits(65519.996F)) == 0x7BFF);
  CHECK(to_f16(float_bits(65520.0F)) == 0x7C00);
  CHECK(to_f16(float_bits(-1e30F)) == 0xFC00);
  CHECK(to_f16(0x7F800000) == 0x7C00);
  CHECK(to_f16(0x7FC00000) == 0x7E00);
  CHECK(to_f16(0xFF800001) == 0xFE00);
  CHECK(to_f16(0x7F802000) == 0x7E01);
  CHECK(to_bf16(0x7F7FFFFF) == 0x7F80);
  CHECK(to_bf16(0xFF800000) == 0xFF80);
  CHECK(to_bf16(0x7F800001) == 0x7FC0);
  CHECK(to_bf16(0xFF811234) == 0xFFC1);
}

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "base/numbers/philox.h"

using namespace gear::base;

namespace {

// floor(r * range / 2^128) by school multiplication over 32-bit digits.
uint64_t scale_slowly(Draw128 r, uint64_t range) {
  const std::array<uint64_t, 4> a = {r.lo & 0xFFFFFFFF, r.lo >> 32, r.hi & 0xFFFFFFFF, r.hi >> 32};
  const std::array<uint64_t, 2> b = {range & 0xFFFFFFFF, range >> 32};
  std::array<uint64_t, 6> product{};
  for (size_t i = 0; i < 4; ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < 2; ++j) {
      carry += product[i + j] + a[i] * b[j];
      product[i + j] = carry & 0xFFFFFFFF;
      carry >>= 32;
    }
    product[i + 2] += carry;
  }
  return (product[5] << 32) | product[4];
}

}  // namespace

// The three vectors of philox4x32 10 in kat_vectors of Random123, the library of the paper's
// authors: counter words, key words, result words.
TEST_CASE("philox gives the published known answers") {
  CHECK(philox(0, 0, 0) == Draw128{0x9b00dbd8bc57ac4c, 0xe169c58d6627e8d5});
  CHECK(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}) ==
        Draw128{0x6d5451fda20bc7c6, 0x41c83b0e408f276d});
  CHECK(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        Draw128{0x24126ea15001e420, 0x94fdccebd16cfe09});
}

TEST_CASE("philox_fill equals philox at every length, alignment and carry") {
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{999}}) {
    for (const uint64_t first : {uint64_t{0}, uint64_t{0xFFFFFFF8}, ~uint64_t{0} - 7}) {
      std::vector<Draw128> draws(length + 1, Draw128{1, 2});
      philox_fill(0x0123456789ABCDEF, 0xFEDCBA9876543210, first, std::span(draws).first(length));
      for (size_t i = 0; i < length; ++i) {
        REQUIRE(draws[i] == philox(0x0123456789ABCDEF, 0xFEDCBA9876543210, first + i));
      }
      CHECK(draws[length] == Draw128{1, 2});
    }
  }
}

TEST_CASE("scale_to is the exact floor") {
  const uint64_t top = ~uint64_t{0};
  CHECK(scale_to({top, top}, 1) == 0);
  CHECK(scale_to({top, top}, top) == top - 1);
  CHECK(scale_to({0, top}, top) == 0);
  CHECK(scale_to({uint64_t{1} << 63, 0}, 10) == 5);
  CHECK(scale_to({(uint64_t{1} << 63) - 1, top}, 10) == 4);
  CHECK(scale_to({top, top}, 0) == 0);
  for (uint64_t i = 0; i < 20000; ++i) {
    const Draw128 draw = philox(1, 2, i);
    const uint64_t range = philox(1, 3, i).lo >> (i % 64);
    REQUIRE(scale_to(draw, range) == scale_slowly(draw, range));
    // A product with a carry out of the middle word.
    REQUIRE(scale_to({draw.hi | 1, top - (draw.lo & 7)}, top - i) ==
            scale_slowly({draw.hi | 1, top - (draw.lo & 7)}, top - i));
  }
}

TEST_CASE("draws scaled to a small range are uniform") {
  constexpr size_t kBins = 100;
  constexpr size_t kDraws = 200000;
  std::vector<double> counts(kBins, 0);
  for (uint64_t i = 0; i < kDraws; ++i) {
    counts[scale_to(philox(7, 0, i), kBins)] += 1;
  }
  double chi_square = 0;
  for (const double count : counts) {
    const double expected = double{kDraws} / kBins;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  CHECK(chi_square < 148.2);  // 99 degrees of freedom, p = 0.001
}

// The scan of random numbers for those that fall on one part of a range.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/numbers/philox.h"

using namespace gear::base;

namespace {

struct Kept {
  std::vector<uint32_t> numbers;
  std::vector<Draw128> draws;

  friend bool operator==(const Kept&, const Kept&) = default;
};

Kept scanned(uint64_t seed, uint64_t stream, uint64_t first, uint32_t count, uint64_t low,
             uint64_t high) {
  std::vector<uint32_t> numbers(count + KeptDraws::kRoom);
  std::vector<uint64_t> hi(count + KeptDraws::kRoom);
  std::vector<uint64_t> lo(count + KeptDraws::kRoom);
  const size_t kept =
      philox_scan(seed, stream, first, count, low, high, {numbers.data(), hi.data(), lo.data()});
  REQUIRE(kept <= count);
  Kept out;
  for (size_t i = 0; i < kept; ++i) {
    out.numbers.push_back(numbers[i]);
    out.draws.push_back({hi[i], lo[i]});
  }
  return out;
}

}  // namespace

TEST_CASE("the scan keeps what one number after the other says, bit by bit") {
  constexpr uint64_t kMost = UINT64_MAX;
  const std::array<std::array<uint64_t, 2>, 7> bounds = {{{0, kMost},
                                                          {0, kMost / 8},
                                                          {kMost / 3, kMost / 3 * 2},
                                                          {kMost / 2 + 1, kMost},
                                                          {kMost / 512 * 511, kMost},
                                                          {kMost / 2, kMost / 2},
                                                          {kMost, kMost}}};
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}, kMost - 1}) {
    for (const uint64_t stream : {uint64_t{0}, uint64_t{0x123456789ABCDEF0}}) {
      // Counters that carry into their upper half, and that wrap.
      for (const uint64_t first : {uint64_t{0}, uint64_t{0xFFFFFFF0}, kMost - 20}) {
        for (const uint32_t count : {0U, 1U, 7U, 8U, 9U, 31U, 32U, 33U, 100U, 515U}) {
          for (const auto& [low, high] : bounds) {
            Kept wanted;
            for (uint32_t i = 0; i < count; ++i) {
              const Draw128 draw = philox(seed, stream, first + i);
              if (low <= draw.hi && draw.hi <= high) {
                wanted.numbers.push_back(i);
                wanted.draws.push_back(draw);
              }
            }
            REQUIRE(scanned(seed, stream, first, count, low, high) == wanted);
          }
        }
      }
    }
  }
}

TEST_CASE("the bounds of a part of a range leave out none of its draws, and keep few others") {
  constexpr uint64_t kLarge = (uint64_t{1} << 63) - 1;
  uint64_t seed = 0;
  for (const uint64_t all :
       {uint64_t{1}, uint64_t{3}, uint64_t{1000}, uint64_t{1} << 40, kLarge - 1, kLarge}) {
    for (int round = 0; round < 40; ++round) {
      const uint64_t begin = round == 0 ? 0 : scale_to(philox(++seed, 1, 0), all);
      const uint64_t size =
          round < 2 ? all - begin : 1 + scale_to(philox(++seed, 1, 1), all - begin);
      const RangePart part(begin, size, all);
      // The numbers at the edges: the first and the last that are scaled into the part, and the
      // ones beside them.
      for (const uint64_t edge : {part.low, part.high}) {
        for (const uint64_t hi : {edge - 1, edge, edge + 1}) {
          for (const uint64_t lo : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX}) {
            const bool inside = scale_to({hi, lo}, all) - begin < size;
            REQUIRE((!inside || (part.low <= hi && hi <= part.high)));
          }
        }
      }
      for (uint64_t i = 0; i < 200; ++i) {
        const Draw128 draw = philox(++seed, 2, i);
        const bool kept = part.low <= draw.hi && draw.hi <= part.high;
        REQUIRE(kept == (scale_to(draw, all) - begin < size));  // an edge is met in 2^64 draws
      }
    }
  }
}

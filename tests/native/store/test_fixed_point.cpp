#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/numbers/philox.h"
#include "store/drawable/fixed_point.h"
#include "store/drawable/priority_sum.h"

using namespace gear::store;

namespace {

double unit_random(uint64_t counter) {
  return std::ldexp(static_cast<double>(gear::base::philox(3, 0, counter).hi >> 11), -53);
}

// Priorities spread over the exponents of float, 0 and the subnormal ones included; ascending.
std::vector<float> priorities() {
  std::vector<float> values = {0.0F,
                               std::numeric_limits<float>::denorm_min(),
                               1e-42F,
                               std::numeric_limits<float>::min(),
                               0.5F,
                               1.0F,
                               std::nextafter(1.0F, 2.0F),
                               65536.0F,
                               std::numeric_limits<float>::max()};
  for (uint64_t i = 0; i < 2000; ++i) {
    values.push_back(static_cast<float>(std::exp2(-40 + 80 * unit_random(i))));
  }
  std::sort(values.begin(), values.end());
  return values;
}

constexpr uint32_t kBits = 40;
constexpr auto kLargest = std::numeric_limits<float>::max();

uint64_t weight_of(float priority, const WeightScale& scale) {
  bool saturated = false;
  const uint64_t weight = fixed_weight(priority, scale, saturated);
  CHECK((!saturated || weight == 1));
  return weight;
}

uint64_t weight_of(float priority, double alpha, float largest, uint32_t bits = kBits) {
  return weight_of(priority, weight_scale(largest, alpha, bits));
}

}  // namespace

TEST_CASE("exp2_portable keeps its error bound") {
  double worst = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = (unit_random(i) - 0.5) * (i % 2 == 0 ? 4 : 1998);
    const long double exact = std::exp2(static_cast<long double>(x));
    const auto error = static_cast<double>(std::fabs(exp2_portable(x) - exact) / exact);
    worst = std::max(worst, error);
  }
  CHECK(worst < 1e-12);
  CHECK(exp2_portable(0.0) == 1.0);
  CHECK(exp2_portable(10.0) == 1024.0);
  CHECK(exp2_portable(-24.0) == std::ldexp(1.0, -24));
}

TEST_CASE("log2_portable keeps its error bound") {
  double worst = 0;
  for (uint64_t i = 0; i < 200000; ++i) {
    const double x = std::exp2((unit_random(i) - 0.5) * (i % 2 == 0 ? 2 : 1998));
    const long double exact = std::log2(static_cast<long double>(x));
    // Beyond the bound on what it computes there is only the rounding of the result to double.
    const long double rounding = std::fabs(exact) * 2.3e-16L;
    worst = std::max(worst, static_cast<double>(std::fabs(log2_portable(x) - exact) - rounding));
  }
  CHECK(worst < 1e-13);
  CHECK(log2_portable(1.0) == 0.0);
  CHECK(log2_portable(1024.0) == 10.0);
  CHECK(log2_portable(0.25) == -2.0);
}

TEST_CASE("so many bits have the weights of a tree that their sum stays below 2^63") {
  CHECK(weight_bits(1) == 40);
  CHECK(weight_bits(uint64_t{1} << 23) == 40);
  CHECK(weight_bits((uint64_t{1} << 23) + 1) == 39);
  CHECK(weight_bits(uint64_t{1} << 32) == 31);
  for (const uint64_t leaves : {1ULL, 3ULL, 1ULL << 23, (1ULL << 23) + 1, (1ULL << 32) - 1}) {
    CHECK(((uint64_t{1} << weight_bits(leaves)) - 1) <= ((uint64_t{1} << 63) - 1) / leaves);
  }
}

TEST_CASE("a weight is p^alpha times a power of two, of which the largest has all bits") {
  for (const double alpha : {0.0, 0.1, 0.5, 0.6, 0.7, 1.0, 1.5, 2.0, 4.0}) {
    for (const float largest : {1e-30F, 0.7F, 1.0F, 3.0F, 65536.0F, kLargest}) {
      CAPTURE(alpha);
      CAPTURE(largest);
      const WeightScale scale = weight_scale(largest, alpha, kBits);
      const uint64_t most = weight_of(largest, scale);
      CHECK(most >= uint64_t{1} << (kBits - 1));
      CHECK(most < uint64_t{1} << kBits);
      uint64_t previous = 0;
      for (const float priority : priorities()) {
        if (priority > largest) {
          break;
        }
        CAPTURE(priority);
        const uint64_t weight = weight_of(priority, scale);
        const long double exact =
            std::exp2(alpha * std::log2(static_cast<long double>(priority)) + scale.shift);
        if (priority == 0) {
          REQUIRE(weight == 0);
        } else {
          REQUIRE(weight >= 1);
          REQUIRE(std::fabs(static_cast<long double>(weight) - exact) <=
                  std::max(1.0L, 1e-11L * exact));
        }
        REQUIRE(weight >= previous);
        previous = weight;
      }
    }
  }
}

TEST_CASE("one factor of all priorities changes no weight's share, a power of two no weight") {
  const std::vector<float> some = {1e-3F, 0.02F, 0.3F, 0.7F, 1.0F, 1.9F};
  for (const double alpha : {0.4, 0.6, 1.0, 1.3}) {
    for (const float factor : {1e-20F, 1e-8F, 0x1p-40F, 0.3F, 2.0F, 0x1p30F, 7e15F}) {
      CAPTURE(alpha);
      CAPTURE(factor);
      const WeightScale before = weight_scale(some.back(), alpha, kBits);
      const WeightScale after = weight_scale(some.back() * factor, alpha, kBits);
      const auto share = [&](float priority, float by, const WeightScale& scale) {
        return static_cast<double>(weight_of(priority * by, scale)) /
               static_cast<double>(weight_of(some.back() * by, scale));
      };
      for (const float priority : some) {
        const double wanted = share(priority, 1.0F, before);
        // The product of two floats is rounded by 2^-24 at most.
        CHECK(std::fabs(share(priority, factor, after) / wanted - 1) < 0x1p-20);
        if (alpha == 1.0 && std::exp2(std::rint(std::log2(factor))) == factor) {
          CHECK(weight_of(priority, before) == weight_of(priority * factor, after));
        }
      }
    }
  }
}

TEST_CASE("weights of the plain cases are exact") {
  const uint64_t one = uint64_t{1} << (kBits - 1);
  for (const double alpha : {0.0, 0.6, 1.0}) {
    CHECK(weight_of(0.0F, alpha, 1.0F) == 0);
    CHECK(weight_of(-0.0F, alpha, 1.0F) == 0);
    CHECK(weight_of(0.0F, alpha, 0.0F) == 0);
    CHECK(weight_of(1.0F, alpha, 1.0F) == one);
  }
  CHECK(weight_of(123.0F, 0.0, 200.0F) == one);
  CHECK(weight_of(std::numeric_limits<float>::denorm_min(), 0.0, 200.0F) == one);
  CHECK(weight_of(1.0F, 1.0, 3.0F) == one / 2);
  CHECK(weight_of(3.0F, 1.0, 3.0F) == one + one / 2);
  CHECK(weight_of(4.0F, 0.5, 4.0F) == 2 * weight_of(1.0F, 0.5, 4.0F));
  CHECK(weight_of(std::numeric_limits<float>::denorm_min(), 1.0,
                  std::numeric_limits<float>::denorm_min()) == one);
  CHECK(weight_of(kLargest, 1.0, kLargest) == ((uint64_t{1} << 24) - 1) << (kBits - 24));
  CHECK(weight_of(1e-8F, 1.0, 6e-8F) * 6 - weight_of(6e-8F, 1.0, 6e-8F) + (1 << 18) < 1 << 19);
}

TEST_CASE("what is too small for a weight weighs 1 and is flagged, which is never taken back") {
  const WeightScale scale = weight_scale(1.0F, 1.0, kBits);
  bool saturated = false;
  CHECK(fixed_weight(0.0F, scale, saturated) == 0);
  CHECK(fixed_weight(0x1p-40F, scale, saturated) == 1);  // a half
  CHECK(!saturated);
  CHECK(fixed_weight(0x0.fp-40F, scale, saturated) == 1);
  CHECK(saturated);
  fixed_weight(1.0F, scale, saturated);
  CHECK(saturated);
}

TEST_CASE("weights stay monotone where p^alpha leaves the range of double") {
  for (const double alpha : {100.0, 1e6, 1e300}) {
    CAPTURE(alpha);
    const WeightScale scale = weight_scale(1.0F, alpha, kBits);
    CHECK(weight_of(std::numeric_limits<float>::denorm_min(), scale) == 1);
    CHECK(weight_of(1e-4F, scale) == 1);
    CHECK(weight_of(1.0F, scale) == uint64_t{1} << (kBits - 1));
    CHECK(weight_of(1e38F, scale) == (uint64_t{1} << kBits) - 1);
    for (const float largest : {1e-38F, 1e38F}) {
      const WeightScale other = weight_scale(largest, alpha, kBits);
      CHECK(weight_of(largest / 2, other) <= weight_of(largest, other));
    }
  }
}

TEST_CASE("many weights at once have the bits of one at a time") {
  const std::vector<float> values = priorities();
  for (const double alpha : {0.0, 0.1, 0.6, 1.0, 4.0, 1e300}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{256}, values.size()}) {
      CAPTURE(alpha);
      const std::span some(values.data() + values.size() - count, count);
      const WeightScale scale = weight_scale(values.back(), alpha, kBits);
      std::vector<uint64_t> weights(count);
      uint64_t wanted_saturated = 0;
      const uint64_t num_saturated = fixed_weights(some, scale, weights);
      for (size_t i = 0; i < count; ++i) {
        bool saturated = false;
        REQUIRE(weights[i] == fixed_weight(some[i], scale, saturated));
        wanted_saturated += saturated;
      }
      CHECK(num_saturated == wanted_saturated);
    }
  }
  std::vector<double> powers(values.size());
  powers_portable(values, -3.25, -0.4, powers);
  for (size_t i = 0; i < values.size(); ++i) {
    REQUIRE(powers[i] == power_portable(values[i], -3.25, -0.4));
  }
}

TEST_CASE("sums of priorities are exact beside any larger one") {
  for (const float largest : {1e-40F, 3.0F, 1e12F, kLargest}) {
    CAPTURE(largest);
    const int32_t shift = sum_shift(largest);
    CHECK((in_sum(largest, shift) >> 95) == 0);
    CHECK((in_sum(largest, shift) >> 94) == 1);
    const std::vector<float> some = {0.0F, largest / 4, largest, largest / 3e12F, -0.0F};
    const double exact =
        static_cast<double>(some[1]) + static_cast<double>(largest) + static_cast<double>(some[3]);
    CHECK(mean_of(summed(some, shift), some.size(), shift) == doctest::Approx(exact / 5));
  }
  CHECK((summed({}, 90) == 0));
  const int32_t shift = sum_shift(1e12F);
  const std::vector<float> small = {0.1F, 0.9F, 0.3F};
  CHECK(mean_of(summed(small, shift), 3, shift) ==
        (static_cast<double>(0.1F) + static_cast<double>(0.9F) + static_cast<double>(0.3F)) / 3);
}

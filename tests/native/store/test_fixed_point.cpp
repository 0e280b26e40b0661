#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/numbers/philox.h"
#include "store/index/fixed_point.h"

using namespace gear::store;

namespace {

constexpr long double kOne = 16777216.0L;  // 2^24, the weight of 1

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

uint64_t weight_of(float priority, double alpha, uint64_t limit = kMaxWeight) {
  bool saturated = false;
  const uint64_t weight = fixed_weight(priority, alpha, limit, saturated);
  CHECK(saturated == (std::pow(static_cast<long double>(priority), alpha) * kOne + 0.5L >=
                      static_cast<long double>(limit) + 1.0L));
  return weight;
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

TEST_CASE("a weight is p^alpha in units of 2^-24, between 1 and the limit") {
  for (const double alpha : {0.0, 0.1, 0.5, 0.6, 0.7, 1.0, 1.5, 2.0, 4.0}) {
    CAPTURE(alpha);
    uint64_t previous = 0;
    for (const float priority : priorities()) {
      CAPTURE(priority);
      const uint64_t weight = weight_of(priority, alpha);
      const long double exact = std::pow(static_cast<long double>(priority), alpha) * kOne;
      const long double clamped =
          std::clamp(exact, 1.0L, static_cast<long double>(uint64_t{kMaxWeight}));
      REQUIRE(std::fabs(static_cast<long double>(weight) - clamped) <=
              std::max(1.0L, 1e-6L * clamped));
      REQUIRE(weight >= previous);
      previous = weight;
    }
  }
}

TEST_CASE("weights of the plain cases are exact") {
  CHECK(weight_of(0.0F, 0.0) == uint64_t{1} << 24);
  CHECK(weight_of(123.0F, 0.0) == uint64_t{1} << 24);
  CHECK(weight_of(0.0F, 0.6) == 1);
  CHECK(weight_of(0.0F, 1.0) == 1);
  CHECK(weight_of(-0.0F, 0.6) == 1);
  CHECK(weight_of(1.0F, 0.6) == uint64_t{1} << 24);
  CHECK(weight_of(3.0F, 1.0) == uint64_t{3} << 24);
  CHECK(weight_of(4.0F, 0.5) == uint64_t{2} << 24);
  CHECK(weight_of(std::numeric_limits<float>::denorm_min(), 1.0) == 1);
  CHECK(weight_of(65535.0F, 1.0) == uint64_t{65535} << 24);
  CHECK(weight_of(65536.0F, 1.0) == kMaxWeight);
  CHECK(weight_of(std::numeric_limits<float>::max(), 1.0) == kMaxWeight);
  CHECK(weight_of(1.0F, 1.0, 1000) == 1000);
}

TEST_CASE("a cut weight is flagged, and the flag is never taken back") {
  bool saturated = false;
  fixed_weight(65536.0F, 1.0, kMaxWeight, saturated);
  CHECK(!saturated);
  fixed_weight(65537.0F, 1.0, kMaxWeight, saturated);
  CHECK(saturated);
  fixed_weight(1.0F, 1.0, kMaxWeight, saturated);
  CHECK(saturated);
}

TEST_CASE("weights stay monotone where p^alpha leaves the range of double") {
  for (const double alpha : {8.0, 10.0, 100.0, 1e6, 1e300}) {
    CAPTURE(alpha);
    bool saturated = false;
    CHECK(fixed_weight(1e-4F, alpha, kMaxWeight, saturated) == 1);
    CHECK(fixed_weight(std::numeric_limits<float>::denorm_min(), alpha, kMaxWeight, saturated) ==
          1);
    CHECK(!saturated);
    CHECK(fixed_weight(1.0F, alpha, kMaxWeight, saturated) == uint64_t{1} << 24);
    CHECK(!saturated);
    CHECK(fixed_weight(1e38F, alpha, kMaxWeight, saturated) == kMaxWeight);
    CHECK(saturated);
  }
}

TEST_CASE("many weights at once have the bits of one at a time") {
  const std::vector<float> values = priorities();
  for (const double alpha : {0.0, 0.1, 0.6, 1.0, 4.0, 1e300}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{256}, values.size()}) {
      CAPTURE(alpha);
      const std::span some(values.data() + values.size() - count, count);
      std::vector<uint64_t> weights(count);
      uint64_t wanted_saturated = 0;
      const uint64_t num_saturated = fixed_weights(some, alpha, kMaxWeight, weights);
      for (size_t i = 0; i < count; ++i) {
        bool saturated = false;
        REQUIRE(weights[i] == fixed_weight(some[i], alpha, kMaxWeight, saturated));
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

TEST_CASE("priority units are exact sums' terms: 0 stays 0, 65536 is the cut") {
  CHECK(priority_units(0.0F) == 0);
  CHECK(priority_units(1.0F) == uint64_t{1} << 24);
  CHECK(priority_units(0.5F) == uint64_t{1} << 23);
  CHECK(priority_units(1e-9F) == 0);
  CHECK(priority_units(65536.0F) == kMaxWeight);
  CHECK(priority_units(std::numeric_limits<float>::max()) == kMaxWeight);
}

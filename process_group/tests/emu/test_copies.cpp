#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "emu/copies.h"

namespace gear::emu {
namespace {

constexpr double kForEver = std::numeric_limits<double>::infinity();

TEST_CASE("the slowest copy counts, in its time") {
  const std::vector<Copy> copies{{.rank = 1, .slow = {{1.5, 10, 20}}},
                                 {.rank = 2, .slow = {{1.2, 0, kForEver}, {2.0, 15, 16}}}};
  CHECK(lateness({}, 5, 0, 0) == 0);
  CHECK(lateness(copies, 5, 0, 0) == doctest::Approx(0.2));
  CHECK(lateness(copies, 10, 0, 0) == doctest::Approx(0.5));
  CHECK(lateness(copies, 15, 0, 0) == doctest::Approx(1.4));
  CHECK(lateness(copies, 20, 0, 0) == doctest::Approx(0.2));
}

// Of a log-normal factor f of mean 1, the mean of max(0, f - 1) is 2 Phi(sigma / 2) - 1.
TEST_CASE("jitter comes late by its mean, and again by the same") {
  constexpr double kSigma = 0.3;
  constexpr int kCalls = 200'000;
  const std::vector<Copy> copies{{.rank = 7, .sigma = kSigma}};
  double sum = 0;
  double squares = 0;
  for (uint64_t call = 0; call < kCalls; ++call) {
    const double late = lateness(copies, 0, 11, call);
    sum += late;
    squares += late * late;
  }
  const double mean = sum / kCalls;
  const double error = std::sqrt((squares / kCalls - mean * mean) / kCalls);
  CHECK(std::abs(mean - std::erf(kSigma / 2 / std::sqrt(2.0))) < 4 * error);
  const auto of_seed = [&](uint64_t seed) {
    std::vector<double> all;
    for (uint64_t call = 0; call < 20; ++call) {
      all.push_back(lateness(copies, 0, seed, call));
    }
    return all;
  };
  CHECK(of_seed(11) == of_seed(11));
  CHECK(of_seed(11) != of_seed(12));
}

TEST_CASE("the last of many copies comes later than one") {
  std::vector<Copy> copies;
  double before = 0;
  for (uint64_t rank = 0; rank < 64; ++rank) {
    copies.push_back({.rank = rank, .sigma = 0.1});
    const double late = lateness(copies, 0, 3, 0);
    CHECK(late >= before);
    before = late;
  }
  CHECK(before > 0.1);
}

}  // namespace
}  // namespace gear::emu

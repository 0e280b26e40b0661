#pragma once

#include <bit>
#include <cstdint>

#include "base/philox.h"

// Priorities to integer sampling weights, in code that gives the same bits on every processor:
// only IEEE additions, multiplications and divisions in a fixed order (the build forbids the
// compiler to contract them).

namespace gear::store {

constexpr unsigned kWeightFractionBits = 24;  // weight of p^alpha = 1
constexpr uint64_t kMaxWeight = uint64_t{1} << 40;

// The largest weight in a tree of so many leaves: their sum stays below 2^63.
GEAR_HD inline uint64_t weight_limit(uint64_t num_leaves) {
  const uint64_t share = ((uint64_t{1} << 63) - 1) / num_leaves;
  return share < kMaxWeight ? share : kMaxWeight;
}

// 2^x, with x cut to [-1000, 1000]; relative error below 1e-12.
GEAR_HD inline double exp2_portable(double x) {
  x = x < -1000.0 ? -1000.0 : x > 1000.0 ? 1000.0 : x;
  const double whole = static_cast<double>(static_cast<int64_t>(x < 0 ? x - 0.5 : x + 0.5));
  const double y = (x - whole) * 0.69314718055994530942;  // in [-0.3466, 0.3466]
  constexpr double kCoefficients[] = {1.0 / 6227020800,
                                      1.0 / 479001600,
                                      1.0 / 39916800,
                                      1.0 / 3628800,
                                      1.0 / 362880,
                                      1.0 / 40320,
                                      1.0 / 5040,
                                      1.0 / 720,
                                      1.0 / 120,
                                      1.0 / 24,
                                      1.0 / 6,
                                      1.0 / 2,
                                      1.0,
                                      1.0};  // Taylor series of e^y, 1 / k!
  double sum = 0.0;
  for (double coefficient : kCoefficients) sum = sum * y + coefficient;
  const uint64_t bits = static_cast<uint64_t>(static_cast<int64_t>(whole) + 1023) << 52;
  return sum * std::bit_cast<double>(bits);
}

// Base-2 logarithm of a positive normal number; absolute error below 1e-13.
GEAR_HD inline double log2_portable(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.41421356237309504880) {
    m = m * 0.5;
    ++exponent;
  }
  const double t = (m - 1.0) / (m + 1.0);  // ln m = 2 atanh t, |t| < 0.1716
  const double t2 = t * t;
  constexpr double kCoefficients[] = {1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,
                                      1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  double sum = 0.0;
  for (double coefficient : kCoefficients) sum = sum * t2 + coefficient;
  return static_cast<double>(exponent) + 2.0 * t * sum * 1.44269504088896340736;
}

// round(p^alpha * 2^24), at least 1 so that every step keeps a chance, at most `limit`
// (`saturated` is set when that cut it). p >= 0 and finite, alpha >= 0.
GEAR_HD inline uint64_t fixed_weight(float priority, double alpha, uint64_t limit,
                                     bool& saturated) {
  double power = 1.0;
  if (alpha == 1.0) {
    power = static_cast<double>(priority);
  } else if (alpha != 0.0) {
    power =
        priority > 0.0F ? exp2_portable(alpha * log2_portable(static_cast<double>(priority))) : 0.0;
  }
  const double scaled = power * static_cast<double>(uint64_t{1} << kWeightFractionBits) + 0.5;
  if (scaled >= static_cast<double>(limit)) {
    saturated = saturated || scaled >= static_cast<double>(limit) + 1.0;
    return limit;
  }
  const auto weight = static_cast<uint64_t>(scaled);
  return weight > 0 ? weight : 1;
}

// A priority in units of 2^-24, for exact sums: 0 stays 0; cut at 65536.
GEAR_HD inline uint64_t priority_units(float priority) {
  const double scaled =
      static_cast<double>(priority) * static_cast<double>(uint64_t{1} << kWeightFractionBits) + 0.5;
  return scaled >= static_cast<double>(kMaxWeight) ? kMaxWeight : static_cast<uint64_t>(scaled);
}

}  // namespace gear::store

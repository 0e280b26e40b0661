#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/host_device.h"

/// Priorities to integer sampling weights, in code that gives the same bits on every processor:
/// only IEEE additions, multiplications and divisions in a fixed order (the build forbids the
/// compiler to contract them). Without a branch, so that compilers work on several at a time.

namespace gear::store {

constexpr unsigned kWeightFractionBits = 24;  ///< weight of p^alpha = 1
constexpr uint64_t kMaxWeight = uint64_t{1} << 40;

/// The largest weight in a tree of so many leaves: their sum stays below 2^63. So p^alpha is cut at
/// kMaxWeight / 2^24 = 65536 up to 2^23 leaves, and at 2^39 / num_leaves beyond: at 512 with 2^30.
/// Counters::saturated_weights says how often. Over ranks the sum may still pass 2^63, and
/// OwnDraws::set_totals refuses it.
GEAR_HD inline uint64_t weight_limit(uint64_t num_leaves) {
  const uint64_t share = ((uint64_t{1} << 63) - 1) / num_leaves;
  return share < kMaxWeight ? share : kMaxWeight;
}

/// 2^x, with x cut to [-1000, 1000]; relative error below 1e-12.
GEAR_HD inline double exp2_portable(double x) {
  x = x < -1000.0 ? -1000.0 : x;
  x = x > 1000.0 ? 1000.0 : x;
  const auto whole = static_cast<int32_t>(x + (x < 0.0 ? -0.5 : 0.5));
  const double y = (x - whole) * 0.69314718055994530942;  // in [-0.3466, 0.3466]
  /// Taylor series of e^y: 1 / k!
  double sum = 1.0 / 6227020800;
  sum = sum * y + 1.0 / 479001600;
  sum = sum * y + 1.0 / 39916800;
  sum = sum * y + 1.0 / 3628800;
  sum = sum * y + 1.0 / 362880;
  sum = sum * y + 1.0 / 40320;
  sum = sum * y + 1.0 / 5040;
  sum = sum * y + 1.0 / 720;
  sum = sum * y + 1.0 / 120;
  sum = sum * y + 1.0 / 24;
  sum = sum * y + 1.0 / 6;
  sum = sum * y + 1.0 / 2;
  sum = sum * y + 1.0;
  sum = sum * y + 1.0;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(whole + 1023) << 52);
}

/// Base-2 logarithm of a positive normal number; absolute error below 1e-13. Finite for 0.
GEAR_HD inline double log2_portable(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  const double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  const bool upper = m > 1.41421356237309504880;
  const double exponent = static_cast<int32_t>(bits >> 52) - 1023;
  const double near_one = m * (upper ? 0.5 : 1.0);
  const double t = (near_one - 1.0) / (near_one + 1.0);  // ln m = 2 atanh t, |t| < 0.1716
  const double t2 = t * t;
  double sum = 1.0 / 17;
  sum = sum * t2 + 1.0 / 15;
  sum = sum * t2 + 1.0 / 13;
  sum = sum * t2 + 1.0 / 11;
  sum = sum * t2 + 1.0 / 9;
  sum = sum * t2 + 1.0 / 7;
  sum = sum * t2 + 1.0 / 5;
  sum = sum * t2 + 1.0 / 3;
  sum = sum * t2 + 1.0;
  return exponent + (upper ? 1.0 : 0.0) + 2.0 * t * sum * 1.44269504088896340736;
}

/// (base / 2^reference)^exponent; 0 for a base of 0.
GEAR_HD inline double power_portable(float base, double reference, double exponent) {
  const double power =
      exp2_portable(exponent * (log2_portable(static_cast<double>(base)) - reference));
  return power * (base > 0.0F ? 1.0 : 0.0);
}

/// round(power * 2^24), at least 1 so that every step keeps a chance, at most `limit` (`saturated`
/// is set when that cut it).
GEAR_HD inline uint64_t weight_of_power(double power, uint64_t limit, bool& saturated) {
  const double scaled = power * static_cast<double>(uint64_t{1} << kWeightFractionBits) + 0.5;
  if (scaled >= static_cast<double>(limit)) {
    saturated = saturated || scaled >= static_cast<double>(limit) + 1.0;
    return limit;
  }
  const auto weight = static_cast<uint64_t>(static_cast<int64_t>(scaled));  // one instruction
  return weight > 0 ? weight : 1;
}

/// The weight of p^alpha. p >= 0 and finite, alpha >= 0.
GEAR_HD inline uint64_t fixed_weight(float priority, double alpha, uint64_t limit,
                                     bool& saturated) {
  double power = 1.0;
  if (alpha == 1.0) {
    power = static_cast<double>(priority);
  } else if (alpha != 0.0) {
    power = power_portable(priority, 0.0, alpha);
  }
  return weight_of_power(power, limit, saturated);
}

/// Many at once, to the same bits.
void powers_portable(std::span<const float> bases, double reference, double exponent,
                     std::span<double> powers);
/// Returns how many of the weights the limit cut.
uint64_t fixed_weights(std::span<const float> priorities, double alpha, uint64_t limit,
                       std::span<uint64_t> weights);

/// A priority in units of 2^-24, for exact sums: 0 stays 0; cut at 65536.
GEAR_HD inline uint64_t priority_units(float priority) {
  const double scaled =
      static_cast<double>(priority) * static_cast<double>(uint64_t{1} << kWeightFractionBits) + 0.5;
  const double limit = static_cast<double>(kMaxWeight);
  return static_cast<uint64_t>(static_cast<int64_t>(scaled < limit ? scaled : limit));
}

}  // namespace gear::store

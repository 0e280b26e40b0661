#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/host_device.h"

/// Priorities to integer sampling weights, in code that gives the same bits on every processor:
/// only IEEE additions, multiplications and divisions in a fixed order (the build forbids the
/// compiler to contract them). Without a branch, so that compilers work on several at a time.

namespace gear::store {

/// p^alpha as a whole number: round(p^alpha * 2^shift), at least 1 where p > 0, and 0 for 0. The
/// shift follows from the largest priority: what is weighed is how priorities compare with it.
struct WeightScale {
  double alpha;
  int32_t shift;
  uint32_t bits;  ///< of a weight

  friend bool operator==(const WeightScale&, const WeightScale&) = default;
};

/// Of a weight in a tree of so many leaves: their sum stays below 2^63. 40 up to 2^23 leaves, one
/// less for each doubling beyond. So p^alpha is rounded by 2^-20 of itself or less down to 2^-20 of
/// the largest one (2^-10 at 2^33 leaves), and below 2^-40 of it every p > 0 weighs 1:
/// Counters::saturated_weights says how often.
constexpr uint32_t weight_bits(uint64_t num_leaves) {
  const auto sum_bits = static_cast<uint32_t>(std::bit_width(num_leaves - 1));
  return sum_bits <= 23 ? 40 : 63 - sum_bits;
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

/// base^exponent * 2^offset; 0 for a base of 0.
GEAR_HD inline double power_portable(float base, double exponent, double offset) {
  const double power = exp2_portable(exponent * log2_portable(static_cast<double>(base)) + offset);
  return power * (base > 0.0F ? 1.0 : 0.0);
}

/// The scale by which the largest of all priorities weighs half of 2^bits or more. It moves where
/// largest^alpha passes a power of two. Of 0, which says that there is none yet, that of 1.
GEAR_HD inline WeightScale weight_scale(float largest, double alpha, uint32_t bits) {
  constexpr double kMost = 1e6;  // beyond, exp2_portable() cuts everything but the largest
  double octave = largest > 0.0F ? alpha * log2_portable(static_cast<double>(largest)) : 0.0;
  octave = octave < -kMost ? -kMost : octave;
  octave = octave > kMost ? kMost : octave;
  const auto towards_zero = static_cast<int32_t>(octave);
  const int32_t floor = towards_zero - (static_cast<double>(towards_zero) > octave ? 1 : 0);
  return {alpha, static_cast<int32_t>(bits) - 1 - floor, bits};
}

/// 2^exponent, -1022 <= exponent <= 1023.
GEAR_HD inline double power_of_two(int32_t exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

/// The weight of a p^alpha * 2^shift; `saturated` is set where less than a half became 1.
GEAR_HD inline uint64_t weight_of_power(double power, uint32_t bits, bool& saturated) {
  const double most = static_cast<double>((uint64_t{1} << bits) - 1);
  const double rounded = power + 0.5;
  const auto weight = static_cast<uint64_t>(
      static_cast<int64_t>(rounded < most ? rounded : most));  // one instruction
  const bool lost = weight == 0 && power > 0.0;
  saturated = saturated || lost;
  return lost ? 1 : weight;
}

/// The weight of p^alpha. p >= 0 and finite, no larger than the scale's largest.
GEAR_HD inline uint64_t fixed_weight(float priority, const WeightScale& scale, bool& saturated) {
  double power = 0.0;
  if (scale.alpha == 1.0) {
    power = static_cast<double>(priority) * power_of_two(scale.shift);
  } else {
    power = power_portable(priority, scale.alpha, scale.shift);
  }
  return weight_of_power(power, scale.bits, saturated);
}

/// Many at once, to the same bits.
void powers_portable(std::span<const float> bases, double exponent, double offset,
                     std::span<double> powers);
/// Returns how many of the weights saturated.
uint64_t fixed_weights(std::span<const float> priorities, const WeightScale& scale,
                       std::span<uint64_t> weights);

}  // namespace gear::store

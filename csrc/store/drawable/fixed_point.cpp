#include "store/drawable/fixed_point.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/numbers/simd.h"

namespace gear::store {
namespace {

constexpr size_t kChunk = 256;  // powers between the two passes over weights

using Powers = void (*)(const float* bases, double exponent, double offset, size_t count,
                        double* powers);

[[gnu::flatten]] void powers_baseline(const float* bases, double exponent, double offset,
                                      size_t count, double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], exponent, offset);
  }
}

#if defined(__x86_64__)
[[gnu::flatten, gnu::target("avx2")]] void powers_avx2(const float* bases, double exponent,
                                                       double offset, size_t count,
                                                       double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], exponent, offset);
  }
}

// On 512 bits at a time: csrc/CMakeLists.txt.
[[gnu::flatten, gnu::target("avx512f,avx512dq,avx512vl")]] void powers_avx512(
    const float* bases, double exponent, double offset, size_t count, double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], exponent, offset);
  }
}
#endif

}  // namespace

void powers_portable(std::span<const float> bases, double exponent, double offset,
                     std::span<double> powers) {
  GEAR_CHECK(bases.size() == powers.size());
  static const Powers form =
      base::pick(powers_baseline, GEAR_X86(powers_avx2), GEAR_X86(powers_avx512));
  form(bases.data(), exponent, offset, bases.size(), powers.data());
}

uint64_t fixed_weights(std::span<const float> priorities, const WeightScale& scale,
                       std::span<uint64_t> weights) {
  GEAR_CHECK(priorities.size() == weights.size());
  std::array<double, kChunk> powers;
  uint64_t num_saturated = 0;
  for (size_t begin = 0; begin < priorities.size(); begin += kChunk) {
    const auto some = priorities.subspan(begin, std::min(kChunk, priorities.size() - begin));
    if (scale.alpha == 1.0) {
      const double unit = power_of_two(scale.shift);
      std::ranges::transform(some, powers.begin(),
                             [&](float p) { return static_cast<double>(p) * unit; });
    } else {
      powers_portable(some, scale.alpha, scale.shift, {powers.data(), some.size()});
    }
    for (size_t i = 0; i < some.size(); ++i) {
      bool saturated = false;
      weights[begin + i] = weight_of_power(powers[i], scale.bits, saturated);
      num_saturated += saturated;
    }
  }
  return num_saturated;
}

}  // namespace gear::store

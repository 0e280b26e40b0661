#include "store/index/fixed_point.h"

#include <algorithm>
#include <array>

#include "base/errors.h"
#include "base/simd.h"

namespace gear::store {
namespace {

constexpr size_t kChunk = 256;  // powers between the two passes over weights

using Powers = void (*)(const float* bases, double reference, double exponent, size_t count,
                        double* powers);

[[gnu::flatten]] void powers_baseline(const float* bases, double reference, double exponent,
                                      size_t count, double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], reference, exponent);
  }
}

#if defined(__x86_64__)
[[gnu::flatten, gnu::target("avx2")]] void powers_avx2(const float* bases, double reference,
                                                       double exponent, size_t count,
                                                       double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], reference, exponent);
  }
}

// On 512 bits at a time: csrc/CMakeLists.txt.
[[gnu::flatten, gnu::target("avx512f,avx512dq,avx512vl")]] void powers_avx512(
    const float* bases, double reference, double exponent, size_t count, double* powers) {
  for (size_t i = 0; i < count; ++i) {
    powers[i] = power_portable(bases[i], reference, exponent);
  }
}
#endif

}  // namespace

void powers_portable(std::span<const float> bases, double reference, double exponent,
                     std::span<double> powers) {
  GEAR_CHECK(bases.size() == powers.size());
  static const Powers form =
      base::pick(powers_baseline, GEAR_X86(powers_avx2), GEAR_X86(powers_avx512));
  form(bases.data(), reference, exponent, bases.size(), powers.data());
}

uint64_t fixed_weights(std::span<const float> priorities, double alpha, uint64_t limit,
                       std::span<uint64_t> weights) {
  GEAR_CHECK(priorities.size() == weights.size());
  std::array<double, kChunk> powers;
  uint64_t num_saturated = 0;
  for (size_t begin = 0; begin < priorities.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, priorities.size() - begin);
    if (alpha == 0.0) {
      std::fill_n(powers.begin(), count, 1.0);
    } else if (alpha == 1.0) {
      std::copy_n(priorities.begin() + static_cast<std::ptrdiff_t>(begin), count, powers.begin());
    } else {
      powers_portable(priorities.subspan(begin, count), 0.0, alpha, {powers.data(), count});
    }
    for (size_t i = 0; i < count; ++i) {
      bool saturated = false;
      weights[begin + i] = weight_of_power(powers[i], limit, saturated);
      num_saturated += saturated;
    }
  }
  return num_saturated;
}

}  // namespace gear::store

#include "base/numbers/permutation.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace gear::base {

// Loops without a branch, which compilers turn into vectors.
struct PermutationBlocks {
  static constexpr size_t kAtOnce = 512;

  [[gnu::always_inline]] static inline void encrypt(const Permutation& order, uint64_t* values,
                                                    size_t count) {
    const Permutation local = order;  // so that no store can change it
    for (size_t i = 0; i < count; ++i) {
      values[i] = local.encrypt(values[i]);
    }
  }
  static void plain(const Permutation& order, uint64_t* values, size_t count) {
    encrypt(order, values, count);
  }
#if defined(__x86_64__)
  [[gnu::target("avx512f,avx512dq,avx512vl")]] static void wide(const Permutation& order,
                                                                uint64_t* values, size_t count) {
    encrypt(order, values, count);
  }
#endif
  static auto choose() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      return &wide;
    }
#endif
    return &plain;
  }
};

void Permutation::elements_from(uint64_t first, std::span<uint64_t> elements) const {
  constexpr size_t kAtOnce = PermutationBlocks::kAtOnce;
  static const auto encrypt_all = PermutationBlocks::choose();
  if (size_ < kSmall) {
    for (uint64_t& element : elements) {
      element = shuffle(first++);
    }
    return;
  }
  std::array<uint64_t, kAtOnce> values;  // and whose they are
  std::array<uint32_t, kAtOnce> places;
  while (!elements.empty()) {
    const size_t some = std::min(kAtOnce, elements.size());
    for (size_t i = 0; i < some; ++i) {
      values[i] = first + i;
      places[i] = static_cast<uint32_t>(i);
    }
    for (size_t left = some; left > 0;) {
      encrypt_all(*this, values.data(), left);
      size_t outside = 0;
      for (size_t i = 0; i < left; ++i) {
        const uint64_t value = values[i];
        const uint32_t place = places[i];
        elements[place] = value;
        values[outside] = value;
        places[outside] = place;
        outside += value >= size_ ? 1 : 0;
      }
      left = outside;
    }
    first += some;
    elements = elements.subspan(some);
  }
}

}  // namespace gear::base

#include "base/numbers/permutation.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/numbers/simd.h"

namespace gear::base {

// Loops without a branch, which compilers turn into vectors.
struct PermutationBlocks {
  static constexpr size_t kAtOnce = 512;

  /// Replaces values by what encrypt, or decrypt, makes of them.
  using Step = void (*)(const Permutation& order, uint64_t* values, size_t count);

  template <bool kBackwards>
  [[gnu::always_inline]] static inline void step(const Permutation& order, uint64_t* values,
                                                 size_t count) {
    const Permutation local = order;  // so that no store can change it
    for (size_t i = 0; i < count; ++i) {
      values[i] = kBackwards ? local.decrypt(values[i]) : local.encrypt(values[i]);
    }
  }
  template <bool kBackwards>
  static void plain(const Permutation& order, uint64_t* values, size_t count) {
    step<kBackwards>(order, values, count);
  }
#if defined(__x86_64__)
  template <bool kBackwards>
  [[gnu::target("avx512f,avx512dq,avx512vl")]] static void wide(const Permutation& order,
                                                                uint64_t* values, size_t count) {
    step<kBackwards>(order, values, count);
  }
#endif
  template <bool kBackwards>
  static Step widest() {
    return pick<Step>(plain<kBackwards>, nullptr, GEAR_X86(wide<kBackwards>));
  }

  // Steps `first`, `first` + 1, ... until each lies in the permutation's range.
  static void walk(const Permutation& order, Step step_all, uint64_t first,
                   std::span<uint64_t> ends) {
    std::array<uint64_t, kAtOnce> values;  // and whose they are
    std::array<uint32_t, kAtOnce> places;
    while (!ends.empty()) {
      const size_t some = std::min(kAtOnce, ends.size());
      for (size_t i = 0; i < some; ++i) {
        values[i] = first + i;
        places[i] = static_cast<uint32_t>(i);
      }
      for (size_t left = some; left > 0;) {
        step_all(order, values.data(), left);
        size_t outside = 0;
        for (size_t i = 0; i < left; ++i) {
          const uint64_t value = values[i];
          const uint32_t place = places[i];
          ends[place] = value;
          values[outside] = value;
          places[outside] = place;
          outside += value >= order.size() ? 1 : 0;
        }
        left = outside;
      }
      first += some;
      ends = ends.subspan(some);
    }
  }
};

void Permutation::elements_from(uint64_t first, std::span<uint64_t> elements) const {
  static const auto encrypt_all = PermutationBlocks::widest<false>();
  if (size_ < kSmall) {
    for (uint64_t& element : elements) {
      element = shuffle(first++);
    }
    return;
  }
  PermutationBlocks::walk(*this, encrypt_all, first, elements);
}

void Permutation::indices_from(uint64_t first, std::span<uint64_t> indices) const {
  static const auto decrypt_all = PermutationBlocks::widest<true>();
  if (size_ < kSmall) {
    for (uint64_t& index : indices) {
      index = unshuffle(first++);
    }
    return;
  }
  PermutationBlocks::walk(*this, decrypt_all, first, indices);
}

}  // namespace gear::base

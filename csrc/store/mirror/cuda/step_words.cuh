#pragma once

#include "store/drawable/step_bits.h"
#include "store/mirror/device_view.h"

// Which steps may be drawn, as kernels look it up.

namespace gear::store {

__device__ inline bool has_step(const uint64_t* words, uint32_t per_page, uint32_t page,
                                uint32_t row) {
  return (words[uint64_t{page} * per_page + row / 64] >> row % 64 & 1) != 0;
}

/// The row of the page's k-th step, of more than k: of steps that are a page's first rows, and of
/// any. Which of the two is known before a kernel runs, and a word a draw is looked at less.
struct FirstRows {};
__device__ inline uint32_t nth_row(FirstRows, uint32_t, uint32_t k) { return k; }
__device__ inline uint32_t nth_row(const StepWords& steps, uint32_t page, uint32_t k) {
  if (steps.words == nullptr) {
    return k;
  }
  const uint64_t* words = steps.words + uint64_t{page} * steps.per_page;
  for (uint32_t w = 0; w < steps.per_page; ++w) {
    const auto count = static_cast<uint32_t>(__popcll(words[w]));
    if (k < count) {
      return w * 64 + nth_bit(words[w], k);
    }
    k -= count;
  }
  return 0;
}

}  // namespace gear::store

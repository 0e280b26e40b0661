#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "base/threads/prefetch.h"
#include "memory/large_vector.h"
#include "store/episode.h"

namespace gear::store {

/// Place of the k-th bit that is set in `word`, which has more than k.
GEAR_HD inline uint32_t nth_bit(uint64_t word, uint32_t k) {
  for (; k > 0; --k) {
    word &= word - 1;
  }
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__ffsll(static_cast<long long>(word))) - 1;
#else
  return static_cast<uint32_t>(std::countr_zero(word));
#endif
}

/// The bits of a word in [from, to), 0 <= from <= to <= 64.
GEAR_HD inline uint64_t bits_between(uint64_t from, uint64_t to) {
  const uint64_t below_to = to == 64 ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
  return from == 64 ? 0 : below_to & ~((uint64_t{1} << from) - 1);
}

/// One bit a step. Every page begins with a word of its own, so that one of up to 64 steps is a
/// word.
class StepBits {
 public:
  StepBits(uint64_t num_pages, uint64_t page_steps)
      : words_per_page_(words_of(page_steps)), words_(num_pages * words_per_page_, 0) {}

  static uint64_t words_of(uint64_t page_steps) { return (page_steps + 63) / 64; }
  uint64_t bytes() const { return words_.size() * sizeof(uint64_t); }
  std::span<const uint64_t> words(uint32_t page) const {
    return {words_.data() + page * words_per_page_, words_per_page_};
  }

  void prefetch(uint32_t page) const { base::prefetch(words_.data() + page * words_per_page_); }

  bool test(uint32_t page, uint64_t row) const { return (word(page, row) >> row % 64 & 1) != 0; }
  void set(uint32_t page, uint64_t row) { word(page, row) |= uint64_t{1} << row % 64; }
  void clear(uint32_t page, uint64_t row) { word(page, row) &= ~(uint64_t{1} << row % 64); }
  /// The rows [from, to).
  void set_run(uint32_t page, uint64_t from, uint64_t to);
  void clear_page(uint32_t page);

  /// The row of the k-th bit that is set, of more than k.
  uint32_t nth(uint32_t page, uint64_t k) const;
  /// The first row from `row` on whose bit is set, or the last one before `row`; kNone: there is
  /// none.
  uint32_t next(uint32_t page, uint64_t row) const;
  uint32_t previous(uint32_t page, uint64_t row) const;

 private:
  const uint64_t& word(uint32_t page, uint64_t row) const {
    return words_[page * words_per_page_ + row / 64];
  }
  uint64_t& word(uint32_t page, uint64_t row) { return words_[page * words_per_page_ + row / 64]; }

  uint64_t words_per_page_;
  memory::LargeVector<uint64_t> words_;
};

}  // namespace gear::store

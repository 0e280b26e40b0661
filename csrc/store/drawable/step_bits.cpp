#include "store/drawable/step_bits.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::store {

void StepBits::set_run(uint32_t page, uint64_t from, uint64_t to) {
  while (from < to) {
    const uint64_t end = std::min(to, from / 64 * 64 + 64);
    word(page, from) |= bits_between(from % 64, end - from / 64 * 64);
    from = end;
  }
}

void StepBits::clear_page(uint32_t page) {
  std::fill_n(words_.begin() + static_cast<ptrdiff_t>(page * words_per_page_), words_per_page_, 0);
}

uint32_t StepBits::nth(uint32_t page, uint64_t k) const {
  const std::span<const uint64_t> of_page = words(page);
  for (uint32_t w = 0; w < of_page.size(); ++w) {
    const auto count = static_cast<uint64_t>(std::popcount(of_page[w]));
    if (k < count) {
      return w * 64 + nth_bit(of_page[w], static_cast<uint32_t>(k));
    }
    k -= count;
  }
  GEAR_CHECK(!"a page has as many steps to draw as the tree counts");
  return 0;
}

uint32_t StepBits::next(uint32_t page, uint64_t row) const {
  const std::span<const uint64_t> of_page = words(page);
  for (uint64_t w = row / 64; w < of_page.size(); ++w) {
    const uint64_t bits = of_page[w] & bits_between(w == row / 64 ? row % 64 : 0, 64);
    if (bits != 0) {
      return static_cast<uint32_t>(w * 64 + static_cast<uint64_t>(std::countr_zero(bits)));
    }
  }
  return kNone;
}

uint32_t StepBits::previous(uint32_t page, uint64_t row) const {
  const std::span<const uint64_t> of_page = words(page);
  for (uint64_t w = (row + 63) / 64; w-- > 0;) {
    const uint64_t bits = of_page[w] & bits_between(0, std::min<uint64_t>(row - w * 64, 64));
    if (bits != 0) {
      return static_cast<uint32_t>(w * 64 + 63 - static_cast<uint64_t>(std::countl_zero(bits)));
    }
  }
  return kNone;
}

}  // namespace gear::store

#pragma once

#include "store/drawable/step_bits.h"

namespace gear::store {

/// Steps that are kept out of what may be drawn by who draws through this mask: a filter. A step
/// that is appended is not kept out. One bit a slot; changed by Index::mark() alone.
class Mask {
 public:
  Mask(uint64_t num_pages, uint64_t page_steps) : out_(num_pages, page_steps) {}

  uint64_t bytes() const { return out_.bytes(); }
  bool keeps_out(uint32_t page, uint64_t row) const { return out_.test(page, row); }

 private:
  friend class Drawables;

  StepBits out_;
};

}  // namespace gear::store

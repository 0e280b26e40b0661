#include "plan/derived.h"

#include <cstring>

namespace gear::plan {

void write_derived(const BatchLayout::DerivedOutput& derived, const StandingFacts& standing,
                   uint32_t place, uint32_t count, uint64_t item, const Batch& batch) {
  const Derived kind = derived.kind;
  const BatchLayout::SharedWindow& shared = batch.layout->windows[derived.window];
  uint64_t length = shared.window.length();
  uint64_t row = item * length;
  if (batch.layout->packed) {
    row = static_cast<uint64_t>(batch.at<int32_t>(shared.cu_seqlens)[item]);
    length = count;
    place = 0;
  }
  const uint64_t row_bytes = base::dtype_bytes(derived_dtype(kind));
  std::byte* const rows = batch.at<std::byte>(derived.data) + row * row_bytes;
  std::memset(rows, 0, length * row_bytes);
  if (count == 0) {
    return;
  }
  if (kind == Derived::kStepIndex) {
    auto* const indices = reinterpret_cast<int64_t*>(rows) + place;
    for (uint32_t i = 0; i < count; ++i) {
      indices[i] = static_cast<int64_t>(standing.first + i);
    }
  } else {
    const uint32_t last = count - 1;
    reinterpret_cast<bool*>(rows)[place + last] = derived_flag(kind, standing, last, count);
  }
}

}  // namespace gear::plan

#include "plan/derived.h"

namespace gear::plan {

void write_derived(const BatchLayout::DerivedOutput& derived, const StandingFacts& standing,
                   uint32_t place, uint32_t count, uint64_t item, const Batch& batch) {
  const BatchLayout::SharedWindow& shared = batch.layout->windows[derived.window];
  uint64_t length = shared.window.length();
  uint64_t row = item * length;
  if (batch.layout->packed) {
    row = static_cast<uint64_t>(batch.at<int32_t>(shared.cu_seqlens)[item]);
    length = count;
    place = 0;
  }
  std::byte* const data = batch.at<std::byte>(derived.data);
  for (uint64_t i = 0; i < length; ++i) {
    // Not below count where i is below place, by wrapping.
    put_derived(derived.kind, standing, static_cast<uint32_t>(i) - place, count, data, row + i);
  }
}

}  // namespace gear::plan

#include "plan/derived.h"

#include <algorithm>
#include <cstring>

namespace gear::plan {

void write_derived(Derived kind, const Standing& standing, uint32_t place, uint32_t count,
                   uint32_t length, std::byte* rows) {
  std::memset(rows, 0, length * base::dtype_bytes(derived_dtype(kind)));
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

#include "plan/packed_rows.h"

#include <utility>

#include "base/errors.h"

namespace gear::plan {

PackedRows::PackedRows(const BatchLayout& layout, const store::PageLayout& pages,
                       std::vector<uint64_t> rows_of_windows)
    : rows(std::move(rows_of_windows)), offset(layout.outputs.size()) {
  constexpr uint64_t kAlign = store::PageLayout::kColumnAlign;
  GEAR_CHECK(rows.size() == layout.windows.size());
  std::vector<bool> placed(layout.outputs.size(), false);
  for (size_t w = 0; w < layout.windows.size(); ++w) {
    const std::vector<size_t>& outputs = layout.windows[w].outputs;
    for (const size_t first : outputs) {
      if (placed[first]) {
        continue;
      }
      const size_t column = layout.outputs[first].column;
      for (const size_t o : outputs) {
        if (layout.outputs[o].column != column) {
          continue;
        }
        offset[o] = bytes;
        placed[o] = true;
      }
      bytes += (rows[w] * pages.step_bytes[column] + kAlign - 1) / kAlign * kAlign;
    }
  }
}

}  // namespace gear::plan

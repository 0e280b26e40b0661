#include "collect/parcel.h"

#include <cstring>

#include "base/errors.h"
#include "collect/parcel_format.h"
#include "collect/window_runs.h"

namespace gear::collect {
namespace {

template <class T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const size_t at = bytes.size();
  bytes.resize(at + values.size_bytes());
  std::memcpy(bytes.data() + at, values.data(), values.size_bytes());
}

template <class T>
void append(std::vector<std::byte>& bytes, const T& value) {
  append(bytes, std::span<const T>(&value, 1));
}

}  // namespace

PackedRows::PackedRows(const BatchLayout& layout, const store::PageLayout& pages,
                       std::vector<uint64_t> rows_of_windows)
    : rows(std::move(rows_of_windows)), offset(layout.outputs.size()) {
  constexpr uint64_t kAlign = store::PageLayout::kColumnAlign;
  GEAR_CHECK(rows.size() == layout.windows.size());
  std::vector<bool> placed(layout.outputs.size(), false);
  for (size_t w = 0; w < layout.windows.size(); ++w) {
    const std::vector<size_t>& outputs = layout.windows[w].outputs;
    for (const size_t first : outputs) {
      if (placed[first]) continue;
      const size_t column = layout.outputs[first].column;
      for (const size_t o : outputs) {
        if (layout.outputs[o].column != column) continue;
        offset[o] = bytes;
        placed[o] = true;
      }
      bytes += (rows[w] * pages.step_bytes[column] + kAlign - 1) / kAlign * kAlign;
    }
  }
}

PackedRows ParcelWriter::write(const store::Index& index, const select::Selection& selection,
                               std::span<const uint32_t> which, std::span<const uint32_t> places,
                               bool mapped, std::vector<std::byte>& bytes, Plan& rows) const {
  GEAR_CHECK(which.size() == places.size());
  bytes.clear();
  rows.reset();
  if (which.empty()) return {};
  append(bytes, ParcelHeader{static_cast<uint32_t>(which.size()), mapped});
  for (const uint32_t i : which) append(bytes, index.id(selection.anchors[i], selection.unit));
  for (const uint32_t i : which) append(bytes, selection.probabilities[i]);
  append(bytes, places);
  std::vector<uint64_t> rows_of_windows;
  for (const BatchLayout::SharedWindow& shared : layout_.windows) {
    const WindowRuns runs(index, pages_.page_steps, shared.window);
    rows.begin_window(runs.most_runs(which.size()));
    uint32_t row = 0;
    for (const uint32_t i : which) {
      const WindowRuns::Steps steps = runs.steps(selection.anchors[i]);
      const Extent& extent = steps.extent;
      append(bytes, ParcelPiece{extent.count, extent.place});
      if (extent.count > 0) runs.add(steps, row, rows);
      row += extent.count;
    }
    rows_of_windows.push_back(row);
  }
  if (!mapped) return {layout_, pages_, std::move(rows_of_windows)};
  for (size_t w = 0; w < rows.num_windows(); ++w) {
    append(bytes, static_cast<uint32_t>(rows.runs(w).size()));
    for (const Run& run : rows.runs(w)) append(bytes, ParcelRun{run.page, run.row, run.count});
  }
  rows.reset();
  return {};
}

}  // namespace gear::collect

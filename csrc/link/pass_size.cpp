#include "link/pass_size.h"

#include <algorithm>
#include <cmath>

namespace gear::link {
namespace {

constexpr double kHardlyLonger = 1.25;

// Seconds of one pass over `batches`.
double pass_s(const LinkModel& model, const plan::BatchLayout& layout,
              const store::PageLayout& pages, uint64_t num_pages, size_t batches) {
  double bytes = 0.0;
  double runs = 0.0;
  for (const plan::BatchLayout::ColumnOutput& output : layout.outputs) {
    const auto items = static_cast<double>(layout.batch_size * batches);
    const uint64_t run_steps = std::min(output.window_rows, pages.page_steps);
    bytes += items * static_cast<double>(output.window_rows * pages.step_bytes[output.column]);
    runs += items * static_cast<double>(output.window_rows) / static_cast<double>(run_steps);
  }
  const double places = static_cast<double>(num_pages * pages.page_bytes) / LinkModel::kPlaceBytes;
  const double visited = places * -std::expm1(-runs / places);  // of random ones
  return std::max(bytes / model.ordered_bytes_per_s(), visited * model.visit_s());
}

}  // namespace

size_t pass_size(const LinkModel& model, const plan::BatchLayout& layout,
                 const store::PageLayout& pages, uint64_t num_pages, size_t prefetch, size_t most) {
  uint64_t rows = 1;
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    rows = std::max(rows, layout.batch_size * shared.window.length());
  }
  most = std::clamp<uint64_t>(INT32_MAX / rows, 1, most);  // rows are numbered through the group
  const size_t half = std::clamp<size_t>(prefetch / 2, 1, most);
  const size_t all = std::clamp<size_t>(prefetch, 1, most);
  const double longer =
      pass_s(model, layout, pages, num_pages, all) / pass_s(model, layout, pages, num_pages, half);
  return longer <= kHardlyLonger ? all : half;
}

}  // namespace gear::link

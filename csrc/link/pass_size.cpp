#include "link/pass_size.h"

#include <algorithm>
#include <cmath>

namespace gear::link {
namespace {

// Both of an H200 behind PCIe 5 with 16 lanes (docs/performance.md). Only their ratio counts, which
// says from how many bytes on a visited place costs the bytes and not the visit.
constexpr double kVisitS = 25e-9;
constexpr double kBytesPerS = 51e9;
constexpr double kPlaceBytes = 65536.0;  // of host memory, that one visit makes cheap to read
constexpr double kHardlyLonger = 1.25;

// Seconds of one pass over `batches`.
double pass_s(const plan::BatchLayout& layout, const store::PageLayout& pages, uint64_t num_pages,
              size_t batches) {
  double bytes = 0.0;
  double runs = 0.0;
  for (const plan::Output& output : layout.outputs) {
    const auto items = static_cast<double>(layout.batch_size * batches);
    const uint64_t run_steps = std::min(output.length(), pages.page_steps);
    bytes += items * static_cast<double>(output.length() * pages.step_bytes[output.column]);
    runs += items * static_cast<double>(output.length()) / static_cast<double>(run_steps);
  }
  const double places = static_cast<double>(num_pages * pages.page_bytes) / kPlaceBytes;
  const double visited = places * -std::expm1(-runs / places);  // of random ones
  return std::max(bytes / kBytesPerS, visited * kVisitS);
}

}  // namespace

size_t group_size(const plan::BatchLayout& layout, const store::PageLayout& pages,
                  uint64_t num_pages, size_t prefetch, size_t most) {
  uint64_t rows = 1;
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    rows = std::max(rows, layout.batch_size * shared.window.length());
  }
  most = std::clamp<uint64_t>(INT32_MAX / rows, 1, most);  // rows are numbered through the group
  const size_t half = std::clamp<size_t>(prefetch / 2, 1, most);
  const size_t all = std::clamp<size_t>(prefetch, 1, most);
  const double longer =
      pass_s(layout, pages, num_pages, all) / pass_s(layout, pages, num_pages, half);
  return longer <= kHardlyLonger ? all : half;
}

}  // namespace gear::link

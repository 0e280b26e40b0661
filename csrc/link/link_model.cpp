#include "link/link_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/errors.h"

namespace gear::link {
namespace {

constexpr double kPlaceBytes = 65536.0;
constexpr uint64_t kTranslatedBytes = uint64_t{256} << 20;
// The launches of a sort by address; its rows count only where it pays a hundredfold.
constexpr double kSortS = 50e-6;
// One host thread draws the items and plans their windows while others gather: together 41 to 49 ns
// an item of one window, whatever its bytes (benchmarks/results, H200).
constexpr double kDrawS = 20e-9;
constexpr double kPlanS = 25e-9;
constexpr double kHardlyLonger = 1.25;

// What some batches move together.
struct Rows {
  double bytes = 0.0;
  double runs = 0.0;
  uint64_t pool_bytes;

  Rows(const plan::BatchLayout& layout, const store::PageLayout& pages, uint64_t num_pages,
       size_t batches)
      : pool_bytes(num_pages * pages.page_bytes) {
    const auto items = static_cast<double>(layout.batch_size * batches);
    for (const plan::BatchLayout::ColumnOutput& output : layout.outputs) {
      const uint64_t run_steps = std::min(output.window_rows, pages.page_steps);
      bytes += items * static_cast<double>(output.window_rows * pages.step_bytes[output.column]);
      runs += items * static_cast<double>(output.window_rows) / static_cast<double>(run_steps);
    }
  }
};

double drawn_s(const LinkModel& link, const Rows& rows) {
  const double places = LinkModel::untranslated(rows.runs, rows.pool_bytes);
  return std::max(rows.bytes / link.bytes_per_s, places / link.places_per_s);
}

// Without the sort.
double ordered_s(const LinkModel& link, const Rows& rows) {
  double visited = 0.0;
  if (rows.pool_bytes > kTranslatedBytes) {
    const double places = static_cast<double>(rows.pool_bytes) / kPlaceBytes;
    visited = places * -std::expm1(-rows.runs / places);  // of random ones
  }
  return std::max(rows.bytes / link.bytes_per_s, visited / link.places_per_s);
}

std::string_view take(std::string_view text, double& value) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || !(value > 0.0)) {
    throw base::CorruptData(
        base::cat("[link] '", text, "' in a file of link speeds: a number above 0 is allowed"));
  }
  return text.substr(static_cast<size_t>(stop - text.data()));
}

std::string head(std::string_view link) { return base::cat("gear links 4, ", link, ": "); }

}  // namespace

double LinkModel::untranslated(double runs, uint64_t pool_bytes) {
  if (pool_bytes <= kTranslatedBytes) {
    return 0.0;
  }
  return runs * (1.0 - static_cast<double>(kTranslatedBytes) / static_cast<double>(pool_bytes));
}

bool LinkModel::order_pays(const plan::BatchLayout& layout, const store::PageLayout& pages,
                           uint64_t num_pages) const {
  const Rows rows(layout, pages, num_pages, 1);
  return kSortS + ordered_s(*this, rows) < drawn_s(*this, rows);
}

plan::Path LinkModel::choose(const plan::BatchLayout& layout, const store::PageLayout& pages,
                             uint64_t num_pages) const {
  const Rows rows(layout, pages, num_pages, 1);
  const double zero_copy_s = std::min(kSortS + ordered_s(*this, rows), drawn_s(*this, rows));
  const double item_s = kDrawS + kPlanS * static_cast<double>(layout.windows.size());
  const double staged_s =
      std::max(rows.bytes / staged_bytes_per_s, static_cast<double>(layout.batch_size) * item_s);
  return zero_copy_s <= staged_s ? plan::Path::kZeroCopy : plan::Path::kStaged;
}

size_t LinkModel::pass_size(const plan::BatchLayout& layout, const store::PageLayout& pages,
                            uint64_t num_pages, size_t prefetch, size_t most) const {
  uint64_t rows = 1;
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    rows = std::max(rows, layout.batch_size * shared.window.length());
  }
  most = std::clamp<uint64_t>(INT32_MAX / rows, 1, most);  // rows are numbered through the group
  const size_t half = std::clamp<size_t>(prefetch / 2, 1, most);
  const size_t all = std::clamp<size_t>(prefetch, 1, most);
  const double longer = ordered_s(*this, Rows(layout, pages, num_pages, all)) /
                        ordered_s(*this, Rows(layout, pages, num_pages, half));
  return longer <= kHardlyLonger ? all : half;
}

std::string LinkModel::text(std::string_view link) const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << head(link) << std::setprecision(17) << bytes_per_s << ' ' << places_per_s << ' '
      << staged_bytes_per_s << '\n';
  return out.str();
}

LinkModel LinkModel::parse(std::string_view text, std::string_view link) {
  const std::string wanted = head(link);
  if (!text.starts_with(wanted)) {
    throw base::CorruptData(base::cat("[link] a file of link speeds begins with '",
                                      text.substr(0, std::min(text.find('\n'), wanted.size())),
                                      "', not with '", wanted, "'"));
  }
  LinkModel model{};
  text.remove_prefix(wanted.size());
  text = take(take(take(text, model.bytes_per_s), model.places_per_s), model.staged_bytes_per_s);
  if (text != "\n") {
    throw base::CorruptData(
        "[link] a file of link speeds does not end behind three numbers: it is torn or foreign");
  }
  return model;
}

}  // namespace gear::link

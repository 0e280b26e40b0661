#include "link/link_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/crc32c.h"
#include "base/errors.h"

namespace gear::link {
namespace {

constexpr std::string_view kFirstLine = "gear links 3";
// A GPU keeps the translations of so much host memory: there, order gains nothing.
constexpr uint64_t kTranslatedBytes = uint64_t{256} << 20;

// Where `value` lies between the points of an ascending axis: between `below` and the next, so far
// along in logarithms. `scale`: what is left of the speed before the first point.
struct Place {
  size_t below;
  double part;
  double scale;
};

Place place_on(const std::vector<uint64_t>& axis, uint64_t value) {
  if (value <= axis.front()) {
    return {0, 0.0, static_cast<double>(value) / static_cast<double>(axis.front())};
  }
  if (value >= axis.back()) {
    return {axis.size() - 1, 0.0, 1.0};
  }
  const auto above = static_cast<size_t>(std::ranges::upper_bound(axis, value) - axis.begin());
  const double low = std::log2(static_cast<double>(axis[above - 1]));
  const double high = std::log2(static_cast<double>(axis[above]));
  return {above - 1, (std::log2(static_cast<double>(value)) - low) / (high - low), 1.0};
}

template <class T>
std::string_view take(std::string_view line, T& value) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) {
    throw base::CorruptData(base::cat("[link] no number in '", line, "' of a file of link speeds"));
  }
  return line.substr(static_cast<size_t>(stop - line.data()));
}

std::string checksum_line(std::string_view body) {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << "crc32c " << std::hex << std::setw(8) << std::setfill('0')
      << base::crc32c(body.data(), body.size()) << '\n';
  return out.str();
}

}  // namespace

LinkModel::LinkModel(std::vector<Sample> samples, HostCost host, uint64_t pool_bytes)
    : host_(host), pool_bytes_(pool_bytes), samples_(std::move(samples)) {
  if (pool_bytes == 0) {
    throw base::InvalidArgument("[link] a link measured over 0 bytes: 1 or more are allowed");
  }
  for (const double seconds : {host.select_s, host.plan_s}) {
    if (!(seconds >= 0.0) || !std::isfinite(seconds)) {
      throw base::InvalidArgument(
          base::cat("[link] ", seconds, " s an item: 0 or more is allowed"));
    }
  }
  std::set<uint64_t> runs;
  std::set<uint64_t> batches;
  std::set<std::pair<uint64_t, uint64_t>> points;
  for (const Sample& sample : samples_) {
    for (const double speed :
         {sample.gb_per_s.zero_copy, sample.gb_per_s.zero_copy_ordered, sample.gb_per_s.staged}) {
      if (!(speed > 0.0) || !std::isfinite(speed)) {
        throw base::InvalidArgument(
            base::cat("[link] a link of ", speed, " GB/s: above 0 is allowed"));
      }
    }
    runs.insert(sample.run_bytes);
    batches.insert(sample.batch_bytes);
    points.emplace(sample.run_bytes, sample.batch_bytes);
  }
  if (samples_.empty() || points.size() != samples_.size() || *runs.begin() == 0 ||
      *batches.begin() == 0 || points.size() != runs.size() * batches.size()) {
    throw base::InvalidArgument(base::cat("[link] ", samples_.size(), " link speeds for ",
                                          runs.size(), " run sizes and ", batches.size(),
                                          " batch sizes: one for each combination is allowed"));
  }
  run_bytes_.assign(runs.begin(), runs.end());
  batch_bytes_.assign(batches.begin(), batches.end());
  std::ranges::sort(samples_, {}, [](const Sample& sample) {
    return std::pair(sample.run_bytes, sample.batch_bytes);
  });
}

LinkModel LinkModel::typical() {
  constexpr uint64_t kBatchBytes = uint64_t{64} << 20;
  return LinkModel({{64, kBatchBytes, {2.5, 32.0, 26.0}},
                    {256, kBatchBytes, {8.5, 33.0, 42.0}},
                    {1024, kBatchBytes, {35.0, 51.0, 42.0}},
                    {4096, kBatchBytes, {51.0, 51.0, 43.0}}},
                   {20e-9, 25e-9});
}

double LinkModel::measured(plan::Path path, bool ordered, size_t run, size_t batch) const {
  const Speeds& speeds = samples_[run * batch_bytes_.size() + batch].gb_per_s;
  if (path == plan::Path::kStaged) {
    return speeds.staged;
  }
  GEAR_CHECK(path == plan::Path::kZeroCopy);
  return ordered ? speeds.zero_copy_ordered : speeds.zero_copy;
}

double LinkModel::visit_s() const {
  // The smallest runs in the largest batch: there the places bind, not the bytes.
  const Sample& sample = samples_[batch_bytes_.size() - 1];
  const auto bytes = static_cast<double>(sample.batch_bytes);
  const double runs = bytes / static_cast<double>(sample.run_bytes);
  const double places = static_cast<double>(pool_bytes_) / kPlaceBytes;
  const double visited = places * -std::expm1(-runs / places);  // of random ones
  return bytes * 1e-9 / sample.gb_per_s.zero_copy_ordered / visited;
}

double LinkModel::ordered_bytes_per_s() const {
  double most = 0.0;
  for (const Sample& sample : samples_) {
    most = std::max(most, sample.gb_per_s.zero_copy_ordered);
  }
  return most * 1e9;
}

double LinkModel::gb_per_s(plan::Path path, bool ordered, uint64_t run_bytes,
                           uint64_t batch_bytes) const {
  const Place run = place_on(run_bytes_, run_bytes);
  const Place batch = place_on(batch_bytes_, batch_bytes);
  const auto along_batch = [&](size_t r) {
    const double low = std::log2(measured(path, ordered, r, batch.below));
    if (batch.part == 0.0) {
      return low;
    }
    return low + batch.part * (std::log2(measured(path, ordered, r, batch.below + 1)) - low);
  };
  double speed = along_batch(run.below);
  if (run.part != 0.0) {
    speed += run.part * (along_batch(run.below + 1) - speed);
  }
  return std::exp2(speed) * run.scale * batch.scale;
}

double LinkModel::seconds(plan::Path path, bool ordered, const plan::BatchLayout& layout,
                          const store::PageLayout& pages) const {
  const auto bytes_of = [&](size_t o) {
    const plan::BatchLayout::ColumnOutput& output = layout.outputs[o];
    return layout.batch_size * output.window_rows * pages.step_bytes[output.column];
  };
  uint64_t batch_bytes = 0;
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    batch_bytes += bytes_of(o);
  }
  double seconds = 0.0;
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    const plan::BatchLayout::ColumnOutput& output = layout.outputs[o];
    const uint64_t run_steps = std::min(output.window_rows, pages.page_steps);
    const uint64_t run_bytes = run_steps * pages.step_bytes[output.column];
    seconds +=
        static_cast<double>(bytes_of(o)) * 1e-9 / gb_per_s(path, ordered, run_bytes, batch_bytes);
  }
  if (path != plan::Path::kStaged) {
    return seconds;
  }
  const double item_s = host_.select_s + host_.plan_s * static_cast<double>(layout.windows.size());
  return std::max(seconds, static_cast<double>(layout.batch_size) * item_s);
}

bool LinkModel::order_pays(const plan::BatchLayout& layout, const store::PageLayout& pages,
                           uint64_t num_pages) const {
  return num_pages * pages.page_bytes > kTranslatedBytes &&
         seconds(plan::Path::kZeroCopy, true, layout, pages) <
             seconds(plan::Path::kZeroCopy, false, layout, pages);
}

plan::Path LinkModel::choose(const plan::BatchLayout& layout, const store::PageLayout& pages,
                             uint64_t num_pages) const {
  // Pages that need no order are as fast in any as they would be in order without the sort.
  const bool ordered =
      order_pays(layout, pages, num_pages) || num_pages * pages.page_bytes <= kTranslatedBytes;
  return seconds(plan::Path::kZeroCopy, ordered, layout, pages) <=
                 seconds(plan::Path::kStaged, false, layout, pages)
             ? plan::Path::kZeroCopy
             : plan::Path::kStaged;
}

uint64_t LinkModel::crossover_bytes(uint64_t run_bytes) const {
  uint64_t crossover = UINT64_MAX;
  for (size_t b = batch_bytes_.size(); b-- > 0;) {
    const auto speed = [&](plan::Path path, bool ordered) {
      return gb_per_s(path, ordered, run_bytes, batch_bytes_[b]);
    };
    const double by_pointer =
        std::max(speed(plan::Path::kZeroCopy, false), speed(plan::Path::kZeroCopy, true));
    const double item_s = host_.select_s + host_.plan_s;
    const double planned = item_s > 0.0 ? static_cast<double>(run_bytes) * 1e-9 / item_s : HUGE_VAL;
    if (by_pointer < std::min(speed(plan::Path::kStaged, false), planned)) {
      return crossover;
    }
    crossover = batch_bytes_[b];
  }
  return 0;
}

std::string LinkModel::text() const {
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out << kFirstLine << '\n' << std::setprecision(17);
  out << "host " << host_.select_s << ' ' << host_.plan_s << '\n';
  out << "pool " << pool_bytes_ << '\n';
  for (const Sample& sample : samples_) {
    const Speeds& speeds = sample.gb_per_s;
    out << sample.run_bytes << ' ' << sample.batch_bytes << ' ' << speeds.zero_copy << ' '
        << speeds.zero_copy_ordered << ' ' << speeds.staged << '\n';
  }
  const std::string body = out.str();
  return body + checksum_line(body);
}

LinkModel LinkModel::parse(std::string_view text) {
  const size_t last = text.rfind("crc32c ");
  if (!text.starts_with(base::cat(kFirstLine, '\n'))) {
    throw base::CorruptData(base::cat("[link] a file of link speeds begins with '",
                                      text.substr(0, text.find('\n')), "', not with '", kFirstLine,
                                      "'"));
  }
  if (last == std::string_view::npos || text.substr(last) != checksum_line(text.substr(0, last))) {
    throw base::CorruptData(
        "[link] the checksum of a file of link speeds does not fit its contents");
  }
  std::string_view left = text.substr(0, last).substr(kFirstLine.size() + 1);
  const auto next_line = [&left] {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    return line;
  };
  HostCost host;
  std::string_view line = next_line();
  line.remove_prefix(std::min(line.find(' '), line.size()));
  take(take(line, host.select_s), host.plan_s);
  uint64_t pool_bytes = 0;
  line = next_line();
  line.remove_prefix(std::min(line.find(' '), line.size()));
  take(line, pool_bytes);
  std::vector<Sample> samples;
  while (!left.empty()) {
    Sample sample{};
    line = next_line();
    line = take(take(line, sample.run_bytes), sample.batch_bytes);
    line = take(line, sample.gb_per_s.zero_copy);
    line = take(line, sample.gb_per_s.zero_copy_ordered);
    take(line, sample.gb_per_s.staged);
    samples.push_back(sample);
  }
  try {
    return LinkModel(std::move(samples), host, pool_bytes);
  } catch (const base::InvalidArgument& error) {
    throw base::CorruptData(error.what());
  }
}

}  // namespace gear::link

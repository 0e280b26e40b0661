#include "group/remote_rows.h"

#include <algorithm>
#include <utility>

#include "gather/gather_cpu.h"

namespace gear::group {
namespace {

constexpr uint64_t kLandingAlign = 64;  // a cache line

}  // namespace

void RemoteRows::begin() {
  num_packed_ = 0;
  reads_.clear();
  bytes_ = 0;
}

void RemoteRows::add(uint32_t owner, const plan::Plan& plan) {
  if (plan.num_runs() == 0) {
    return;
  }
  if (num_packed_ == packed_.size()) {
    packed_.emplace_back();
  }
  Packed& packed = packed_[num_packed_++];
  packed.plan.reset();
  std::vector<uint64_t> rows_of_windows;
  for (size_t w = 0; w < plan.num_windows(); ++w) {
    const std::span<const plan::Run> runs = plan.runs(w);
    packed.plan.begin_window(runs.size());
    uint32_t row = 0;
    for (const plan::Run& run : runs) {
      packed.plan.add({0, row, run.count, run.target});
      row += run.count;
    }
    rows_of_windows.push_back(row);
  }
  packed.rows = {layout_, pages_, std::move(rows_of_windows)};
  packed.begin = (bytes_ + kLandingAlign - 1) / kLandingAlign * kLandingAlign;
  bytes_ = packed.begin + packed.rows.bytes;
  for (size_t w = 0; w < plan.num_windows(); ++w) {
    const std::vector<size_t>& outputs = layout_.windows[w].outputs;
    for (auto output = outputs.begin(); output != outputs.end(); ++output) {
      const size_t column = layout_.outputs[*output].column;
      // Outputs that show the same column share its rows.
      if (std::any_of(outputs.begin(), output,
                      [&](size_t earlier) { return layout_.outputs[earlier].column == column; })) {
        continue;
      }
      uint64_t to = packed.begin + packed.rows.offset[*output];
      for (const plan::Run& run : plan.runs(w)) {
        const uint64_t bytes = run.count * pages_.step_bytes[column];
        reads_.push_back({owner, pages_.offset(run.page, column, run.row), bytes, to});
        to += bytes;
      }
    }
  }
}

void RemoteRows::finish(const plan::Batch& batch, base::ThreadPool& pool) {
  if (reads_.empty()) {
    return;
  }
  const transport::ConstBytes landed = reader_.read(reads_, bytes_);
  for (size_t i = 0; i < num_packed_; ++i) {
    const Packed& packed = packed_[i];
    gather::unpack_cpu(landed.data() + packed.begin, packed.rows, pages_, packed.plan, batch, pool);
  }
}

}  // namespace gear::group

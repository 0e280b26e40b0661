#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "base/numbers/philox.h"
#include "plan/batch.h"
#include "store/writing/writer.h"

/// Content that can be checked wherever it turns up: every row says which step it is.
namespace gear::testing {

constexpr uint64_t kNumbers = 8;  // of a row: episode, step, and hashes of both

/// Rows say which step they are, and every number of them follows from that.
struct Row {
  uint64_t numbers[kNumbers];

  Row(uint64_t episode, uint64_t step) : numbers{episode, step} {
    for (uint64_t i = 2; i < kNumbers; ++i) {
      numbers[i] = base::philox(episode, step, i).lo;
    }
  }
};

inline store::Schema schema() {
  return store::Schema({{"row", {kNumbers}, base::DType::kU64}, {"step", {}, base::DType::kU32}});
}

inline store::ShardOptions options_of(uint64_t capacity) {
  store::ShardOptions options;
  options.page_steps = 4;
  options.capacity = capacity;
  return options;
}

inline std::vector<plan::Output> windows() {
  return {{"row", 0, 0, 1, plan::Pad::kBoth, false}, {"history", 0, -5, 3}, {"steps", 1, -2, 2}};
}

/// `episode` names the content.
inline void append(store::Writer& writer, uint64_t episode, uint64_t first, uint64_t count) {
  std::vector<Row> rows;
  std::vector<uint32_t> steps;
  for (uint64_t step = first; step < first + count; ++step) {
    rows.emplace_back(episode, step);
    steps.push_back(static_cast<uint32_t>(step));
  }
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows.data()),
                                reinterpret_cast<const std::byte*>(steps.data())};
  writer.append(columns, count, {});
}

inline void add_episode(store::Writer& writer, uint64_t episode, uint64_t steps) {
  append(writer, episode, 0, steps);
  writer.end_episode(store::EpisodeState::kTerminated, -1.0, {});
}

/// The number of rows in a batch that are not one step of one episode, whole and in their place.
inline uint64_t wrong_rows(const plan::Batch& batch) {
  const plan::BatchLayout& layout = *batch.layout;
  uint64_t wrong = 0;
  uint64_t packed_row = 0;
  for (uint64_t item = 0; item < batch.items; ++item) {
    const auto* anchor = batch.at<Row>(layout.data[0]) + item;
    const Row wanted(anchor->numbers[0], anchor->numbers[1]);
    wrong += std::memcmp(anchor, &wanted, sizeof(Row)) != 0;
    const plan::BatchLayout::SharedWindow& shared = layout.windows[layout.window_of[1]];
    const int32_t length = batch.at<int32_t>(shared.lengths)[item];
    const uint64_t rows =
        layout.packed ? static_cast<uint64_t>(length) : layout.outputs[1].window_rows;
    uint64_t before = layout.packed ? 0 : 5;  // rows in front of the anchor's
    for (uint64_t i = 0; layout.packed && i < rows; ++i) {
      before += batch.at<Row>(layout.data[1])[packed_row + i].numbers[1] < wanted.numbers[1];
    }
    for (uint64_t i = 0; i < rows; ++i) {
      const auto* row =
          batch.at<Row>(layout.data[1]) + (layout.packed ? packed_row : item * rows) + i;
      if (!layout.packed && !batch.at<bool>(shared.mask)[item * rows + i]) {
        for (const uint64_t number : row->numbers) {
          wrong += number != 0;
        }
        continue;
      }
      const Row there(wanted.numbers[0], wanted.numbers[1] + i - before);
      wrong += std::memcmp(row, &there, sizeof(Row)) != 0;
    }
    packed_row += rows;
  }
  return wrong;
}

}  // namespace gear::testing

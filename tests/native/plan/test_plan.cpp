// Plans against a model that writes down, byte by byte, what a batch must hold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "deliver/block_pool.h"
#include "expect_message.h"
#include "gather/gather_cpu.h"
#include "varied_content.h"

using namespace gear::deliver;
using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using gear::base::DType;
using namespace gear::testing;

namespace {

// What the rows of a window are: step numbers, or -1 where there is none, in delivery order.
std::vector<int64_t> window_of(const Episode& episode, uint64_t step, size_t column,
                               const Window& window) {
  std::vector<int64_t> there;
  std::vector<int64_t> rows;
  const uint64_t closing = episode.closing_columns >> column & 1;
  for (int64_t offset = window.start; offset < window.stop; ++offset) {
    const int64_t at = static_cast<int64_t>(step) + offset;
    const bool exists = at >= static_cast<int64_t>(episode.begin) &&
                        at < static_cast<int64_t>(episode.end + closing);
    rows.push_back(exists ? at : -1);
    if (exists) {
      there.push_back(at);
    }
  }
  if (window.pad == Pad::kBoth) {
    return rows;
  }
  there.insert(window.pad == Pad::kHead ? there.begin() : there.end(), rows.size() - there.size(),
               -1);
  return there;
}

// Every row of every output, its mask, lengths and cu_seqlens; behind the last row nothing changed.
void expect_as_modelled(Shard& shard, const Batch& batch, const gear::select::Selection& chosen) {
  const BatchLayout& layout = *batch.layout;
  const Index& index = shard.index();
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    const BatchLayout::ColumnOutput& output = layout.outputs[o];
    const BatchLayout::SharedWindow& shared = layout.windows[layout.window_of[o]];
    const uint64_t step_bytes = shard.layout().step_bytes[output.column];
    uint64_t row = 0;
    for (uint64_t item = 0; item < chosen.size(); ++item) {
      const Page& page = index.page(chosen.anchors[item].page);
      const Episode& episode = index.episode(page.episode);
      const auto window = window_of(episode, page.first_step + chosen.anchors[item].row,
                                    output.column, shared.window);
      int32_t length = 0;
      if (layout.packed) {
        REQUIRE(batch.at<int32_t>(shared.cu_seqlens)[item] == static_cast<int32_t>(row));
      }
      for (size_t i = 0; i < window.size(); ++i) {
        const bool exists = window[i] >= 0;
        length += exists;
        if (layout.packed && !exists) {
          continue;
        }
        if (!layout.packed) {
          REQUIRE(batch.at<bool>(shared.mask)[item * window.size() + i] == exists);
        }
        const uint8_t* value = batch.at<uint8_t>(layout.data[o]) + row * step_bytes;
        for (uint64_t b = 0; b < step_bytes; ++b) {
          const auto step = static_cast<uint64_t>(window[i]);
          const int wanted = exists ? value_of(episode.uid, step, output.column, b) : 0;
          REQUIRE(static_cast<int>(value[b]) == wanted);
        }
        ++row;
      }
      REQUIRE(batch.at<int32_t>(shared.lengths)[item] == length);
    }
    REQUIRE(batch.rows[layout.window_of[o]] == row);
    if (layout.packed) {
      REQUIRE(batch.at<int32_t>(shared.cu_seqlens)[chosen.size()] == static_cast<int32_t>(row));
    }
    const uint64_t all = layout.batch_size * output.delivered_rows * step_bytes;
    for (uint64_t b = row * step_bytes; b < all; ++b) {
      REQUIRE(batch.at<uint8_t>(layout.data[o])[b] == kPoison);
    }
  }
}

// Every run stays in one page, and each row of a window is written by exactly one run.
void expect_sound_runs(const Shard& shard, const Plan& plan, const Batch& batch) {
  REQUIRE(plan.num_windows() == batch.layout->windows.size());
  uint64_t copied = 0;
  uint64_t num_runs = 0;
  for (size_t w = 0; w < plan.num_windows(); ++w) {
    uint64_t row_bytes = 0;
    for (const size_t o : batch.layout->windows[w].outputs) {
      row_bytes += shard.layout().step_bytes[batch.layout->outputs[o].column];
    }
    std::vector<int> written(batch.rows[w], 0);
    for (const Run& run : plan.runs(w)) {
      REQUIRE(run.count > 0);
      REQUIRE(run.target + run.count <= written.size());
      for (uint32_t i = 0; i < run.count; ++i) {
        ++written[run.target + i];
      }
      if (run.page == kNone) {
        continue;
      }
      REQUIRE(run.row + run.count <= shard.layout().page_steps);
      copied += run.count * row_bytes;
    }
    REQUIRE(written == std::vector<int>(written.size(), 1));
    num_runs += plan.runs(w).size();
  }
  REQUIRE(num_runs == plan.num_runs());
  REQUIRE(copied == batch.bytes);
}

}  // namespace

TEST_CASE("plans of random windows hold what a byte-per-byte model says") {
  VariedContent content;
  Shard& shard = *content.shard;
  const uint64_t capacity = shard.index().num_slots();
  const std::vector<Anchor> anchors = all_steps(shard.index());
  REQUIRE(shard.index().state().counters.steps_evicted > 0);
  gear::base::ThreadPool pool(1);
  Plan plan;
  for (uint64_t round = 0; round < 120; ++round) {
    CAPTURE(round);
    std::vector<Output> outputs;
    for (size_t o = 0; o < 1 + round % 3; ++o) {
      outputs.push_back(random_output(round, o, capacity));
      if (o == 0 || round % 2 == 0) {
        continue;
      }
      column_of(outputs[o]).window = column_of(outputs[0]).window;  // perhaps a shared one
    }
    gear::select::Selection chosen;
    const uint64_t items = 1 + round % 13;
    for (uint64_t i = 0; i < items; ++i) {
      chosen.add(anchors[gear::base::philox(round, 1, i).lo % anchors.size()], 0.25F);
    }
    Batch batch;
    batch.layout =
        std::make_shared<BatchLayout>(shard.schema(), outputs, items + round % 2, round % 4 == 3);
    batch.block = host_block(batch.layout->bytes);
    std::memset(batch.block.get(), kPoison, batch.layout->bytes);
    make_plan(shard.index(), shard.layout(), chosen, batch, plan);
    gather_cpu(shard.data(), shard.layout(), plan, batch, pool);
    REQUIRE(batch.items == items);
    for (uint64_t i = 0; i < items; ++i) {
      REQUIRE(batch.at<int64_t>(batch.layout->ids)[i] ==
              shard.index().id(chosen.anchors[i], Unit::kStep));
      REQUIRE(batch.at<float>(batch.layout->probabilities)[i] == 0.25F);
      REQUIRE(batch.at<float>(batch.layout->weights)[i] == 1.0F);
    }
    expect_sound_runs(shard, plan, batch);
    expect_as_modelled(shard, batch, chosen);
  }
}

TEST_CASE("the tensors of a batch lie apart, each at a multiple of 64") {
  const Schema schema({{"a", {3}, DType::kU8}});
  for (const bool packed : {false, true}) {
    const BatchLayout layout(schema, {{"x", 0, -2, 3}, {"y", 0, 0, 1}}, 5, packed);
    struct Part {
      uint64_t begin, bytes;
    };
    std::vector<Part> parts = {{layout.ids, 40}, {layout.probabilities, 20}, {layout.weights, 20}};
    REQUIRE(layout.windows.size() == 2);
    for (size_t o = 0; o < 2; ++o) {
      const uint64_t length = layout.outputs[o].window_rows;
      const BatchLayout::SharedWindow& shared = layout.windows[layout.window_of[o]];
      parts.push_back({layout.data[o], 5 * length * 3});
      parts.push_back({shared.lengths, 20});
      parts.push_back(packed ? Part{shared.cu_seqlens, 24} : Part{shared.mask, 5 * length});
    }
    std::sort(parts.begin(), parts.end(), [](Part a, Part b) { return a.begin < b.begin; });
    uint64_t end = 0;
    for (const Part& part : parts) {
      CHECK(part.begin % 64 == 0);
      CHECK(part.begin >= end);
      end = part.begin + part.bytes;
    }
    CHECK(end <= layout.bytes);
  }
}

TEST_CASE("outputs share a window only where no closing step can tell them apart") {
  const Schema schema({{"a", {}, DType::kU8}, {"b", {}, DType::kU8}});
  const auto windows_of = [&](const std::vector<Output>& outputs) {
    return BatchLayout(schema, outputs, 1, false).window_of;
  };
  using Places = std::vector<size_t>;
  CHECK(windows_of({{"x", 0, 0, 1}, {"y", 1, 0, 1}}) == Places{0, 0});
  CHECK(windows_of({{"x", 0, -3, 1}, {"y", 1, -3, 1}}) == Places{0, 0});
  CHECK(windows_of({{"x", 0, 0, 2}, {"y", 1, 0, 2}}) == Places{0, 1});
  CHECK(windows_of({{"x", 0, 0, 2}, {"z", 1, 0, 2}, {"y", 0, 0, 2}}) == Places{0, 1, 0});
  CHECK(windows_of({{"x", 0, -1, 1}, {"y", 1, -1, 1, Pad::kHead}}) == Places{0, 1});
  CHECK(windows_of({{"x", 0, -1, 1}, {"y", 1, -2, 1}}) == Places{0, 1});
}

TEST_CASE("windows that cannot be are refused") {
  const Schema schema({{"a", {}, DType::kU8}});
  const auto expect_refused = [&](std::vector<Output> outputs, uint64_t batch_size,
                                  const char* part) {
    CAPTURE(part);
    expect_message<gear::base::InvalidArgument>(
        [&] { check_outputs(outputs, schema, batch_size, 100); }, "[loader]", part);
  };
  constexpr int64_t kFar = int64_t{1} << 62;
  expect_refused({}, 1, "no output");
  expect_refused({{"x", 0, 0, 1}}, 0, "batch_size 0");
  expect_refused({{"x", 0, 0, 1}, {"x", 0, 0, 1}}, 1, "given twice");
  expect_refused({{"x", 0, 2, 2}}, 1, "is empty");
  expect_refused({{"x", 0, 2, -2}}, 1, "is empty");
  expect_refused({{"x", 0, 101, 102}}, 1, "out of reach");
  expect_refused({{"x", 0, -102, -101}}, 1, "out of reach");
  expect_refused({{"x", 0, 0, 1}}, uint64_t{1} << 31, "batch_size 2147483648");
  expect_refused({{"x", 0, 0, 4}}, uint64_t{1} << 29, "2^31 rows");
  expect_refused({{"x", 0, 0, 4}}, uint64_t{1} << 62, "batch_size 4611686018427387904");
  expect_refused({{"x", 0, 0, 1}}, ~uint64_t{0}, "batch_size 18446744073709551615");
  expect_refused({{"x", 0, -kFar - kFar, 1}}, 2, "2^31 rows");
  expect_refused({{"x", 0, 0, kFar + (kFar - 1)}}, 1, "2^31 rows");
  CHECK_NOTHROW(check_outputs({{"x", 0, 0, 4}}, schema, (1 << 29) - 1, 100));
  CHECK_NOTHROW(check_outputs({{"x", 0, -100, 101}}, schema, 1, 100));
}

TEST_CASE("the lookahead of outputs is how far the furthest reaches past its anchor") {
  CHECK(lookahead({{"x", 0, -5, -1}}) == 0);
  CHECK(lookahead({{"x", 0, 0, 1}}) == 0);
  CHECK(lookahead({{"x", 0, -5, 3}, {"y", 0, 4, 6}}) == 5);
  // Whether a step is the last, the next one tells.
  for (const auto& [kind, reach] :
       {std::pair{Derived::kTerminated, 1}, {Derived::kIsLast, 1}, {Derived::kStepIndex, 0}}) {
    const Output over("over", Standing{kind, {0, 1}});
    CHECK(lookahead({{"x", 0, -5, -1}, over}) == static_cast<uint64_t>(reach));
  }
}

TEST_CASE("a batch of more bytes than addresses can name is refused, not wrapped round") {
  const Schema schema({{"x", {1 << 26}, DType::kU8}});
  Output output{"x", 0, 1 - (1 << 26), 1};
  column_of(output).dtype = DType::kF32;
  // 2^26 rows of 2^28 bytes each: 2^10 of them are 2^64.
  expect_message<gear::base::InvalidArgument>(
      [&] { BatchLayout(schema, std::vector<Output>(1 << 10, output), 1, false); },
      "batches of 1 items and 1024 outputs", "2^62 bytes or more");
  const BatchLayout allowed(schema, std::vector<Output>(1 << 7, output), 1, false);
  CHECK(allowed.bytes >= uint64_t{1} << 61);
}

TEST_CASE("outputs that differ a little are told apart in words") {
  const auto folded_by = [](float factor) {
    Fold fold;
    fold.n = 3;
    fold.factor = factor;
    return in_words(Output("x", fold));
  };
  CHECK(folded_by(0.9999999F) != folded_by(1.0F));
  StepColumn one{0, {0, 1}};
  StepColumn other = one;
  one.scale = 0.1F;
  other.scale = std::nextafter(0.1F, 1.0F);
  CHECK(in_words(Output("x", one)) != in_words(Output("x", other)));
}

// The device's plan against the CPU's: ids, lengths, masks, cu_seqlens and, through a gather, rows.
#include "planned_content.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

namespace {

std::vector<Column> small_columns() {
  return {{"a", {}, DType::kU8}, {"b", {11}, DType::kF32}, {"c", {3}, DType::kF64}};
}

Output random_output(uint64_t round, size_t o, uint64_t reach) {
  const auto random = [&](uint64_t range, uint64_t n) {
    return random_below(range, round, 1000 + 10 * o + n);
  };
  const auto start = static_cast<int64_t>(random(2 * reach, 0)) - static_cast<int64_t>(reach);
  const auto length = static_cast<int64_t>(1 + random(random(3, 1) == 0 ? 3 * reach : 6, 2));
  const Window window{start, start + length, static_cast<Pad>(random(3, 4))};
  const std::string name = "o" + std::to_string(o);
  if (o > 0 && random(2, 5) == 0) {
    return {name, Standing{static_cast<Derived>(random(3, 6)), window}};
  }
  return {name, StepColumn{random(3, 3), window}};
}

}  // namespace

TEST_CASE("random windows are planned as on the CPU") {
  for (const uint64_t page_steps : {1, 4, 7}) {
    const auto shard = make_content(small_columns(), page_steps, 420);
    REQUIRE(shard->index().state().counters.steps_evicted > 0);
    const UploadedShard uploaded(*shard);
    for (uint64_t round = 0; round < 24; ++round) {
      Trial trial{{}, 0, 1 + random_below(40, round, 1 << 20), round % 2 == 1};
      trial.batch_size = trial.items + round % 3;
      for (size_t o = 0; o < 1 + round % 4; ++o) {
        trial.outputs.push_back(random_output(100 * page_steps + round, o, 30));
      }
      expect_same_batch(*shard, uploaded, trial, round);
    }
  }
}

TEST_CASE("what is derived of steps is that of the CPU") {
  const auto shard = make_content(small_columns(), 4, 420);
  const UploadedShard uploaded(*shard);
  for (const Derived kind : {Derived::kTerminated, Derived::kIsLast, Derived::kStepIndex}) {
    for (const bool packed : {false, true}) {
      std::vector<Output> outputs = {{"x", 0, 0, 1}};
      for (const auto& [start, stop] : {std::pair{0, 1}, {-2, 3}, {0, 40}, {1, 2}}) {
        outputs.emplace_back("d" + std::to_string(outputs.size()), Standing{kind, {start, stop}});
      }
      expect_same_batch(*shard, uploaded, {outputs, 305, 300, packed}, 5);
    }
  }
}

TEST_CASE("many items take many blocks, and their rows follow each other") {
  const auto shard = make_content(small_columns(), 4, 420);
  const UploadedShard uploaded(*shard);
  for (const uint64_t items : {255, 256, 257, 1000, 3000}) {
    for (const bool packed : {false, true}) {
      expect_same_batch(
          *shard, uploaded,
          {{{"x", 0, 0, 1}, {"y", 1, -3, 2}, {"z", 2, -20, 25}}, items + 5, items, packed}, items);
    }
  }
}

TEST_CASE("blocks of sums beyond one block's scan") {
  const auto shard = make_content({{"a", {}, DType::kU8}}, 4, 420);
  const UploadedShard uploaded(*shard);
  expect_same_batch(*shard, uploaded, {{{"x", 0, -2, 1}}, 70000, 70000, true}, 1);
}

TEST_CASE("a batch without items, and one with a single one") {
  const auto shard = make_content(small_columns(), 4, 100);
  const UploadedShard uploaded(*shard);
  for (const bool packed : {false, true}) {
    expect_same_batch(*shard, uploaded, {{{"x", 0, -2, 3}, {"y", 1, 0, 1}}, 16, 0, packed}, 2);
    expect_same_batch(*shard, uploaded, {{{"x", 0, -2, 3}, {"y", 1, 0, 1}}, 1, 1, packed}, 3);
  }
}

TEST_CASE("more windows and outputs than one launch takes") {
  const auto shard = make_content(small_columns(), 4, 200);
  const UploadedShard uploaded(*shard);
  std::vector<Output> outputs;
  for (int64_t o = 0; o < 75; ++o) {
    outputs.push_back(
        {"o" + std::to_string(o), static_cast<size_t>(o % 3), o - 40, o - 39 + o % 5});
  }
  for (const bool packed : {false, true}) {
    expect_same_batch(*shard, uploaded, {outputs, 20, 19, packed}, 4);
  }
}

TEST_CASE("anchors that are nowhere deliver nothing") {
  const auto shard = make_content(small_columns(), 4, 100);
  const UploadedShard uploaded(*shard);
  const auto layout = std::make_shared<BatchLayout>(shard->schema(),
                                                    std::vector<Output>{{"x", 0, -1, 2}}, 2, false);
  const gear::base::Stream stream(kDevice);
  DevicePlan plan(layout, shard->layout(), shard->index().num_slots(), kDevice);
  const GuardedBlock block(layout->bytes);
  const std::vector<uint32_t> slots = {kNone, static_cast<uint32_t>(shard->index().num_slots())};
  GEAR_CUDA_TRY(cudaMemcpy(plan.slots(), slots.data(), 8, cudaMemcpyHostToDevice));
  GEAR_CUDA_TRY(cudaDeviceSynchronize());
  plan.launch(uploaded.view, Unit::kStep, 2, block.get(), nullptr, stream);
  stream.synchronize();
  const std::vector<std::byte> planned = block.read();
  for (size_t i = 0; i < 2; ++i) {
    int64_t id = 0;
    int32_t length = 1;
    std::memcpy(&id, planned.data() + layout->ids + 8 * i, sizeof id);
    std::memcpy(&length, planned.data() + layout->windows[0].lengths + 4 * i, sizeof length);
    CHECK(id == -1);
    CHECK(length == 0);
  }
  CHECK(download(plan.rows()[0].slots, 6) == std::vector<uint32_t>(6, kNone));
}

TEST_CASE("a window of the anchor alone finds what a longer one finds there, in any slot") {
  const auto shard = make_content(small_columns(), 4, 420);
  const UploadedShard uploaded(*shard);
  const uint64_t slots = shard->index().num_slots();  // closing steps and free pages among them
  for (size_t column = 0; column < 3; ++column) {
    const auto layout = std::make_shared<BatchLayout>(
        shard->schema(), std::vector<Output>{{"x", column, 0, 1}, {"y", column, 0, 2}}, slots,
        false);
    const gear::base::Stream stream(kDevice);
    DevicePlan plan(layout, shard->layout(), slots, kDevice);
    const GuardedBlock block(layout->bytes);
    std::vector<uint32_t> anchors(slots);
    std::iota(anchors.begin(), anchors.end(), 0U);
    GEAR_CUDA_TRY(
        cudaMemcpy(plan.slots(), anchors.data(), 4 * anchors.size(), cudaMemcpyHostToDevice));
    GEAR_CUDA_TRY(cudaDeviceSynchronize());
    plan.launch(uploaded.view, Unit::kStep, slots, block.get(), nullptr, stream);
    stream.synchronize();
    const std::vector<std::byte> planned = block.read();
    const size_t one = layout->window_of[0];
    const auto rows = download(plan.rows()[one].slots, slots);
    const auto longer = download(plan.rows()[layout->window_of[1]].slots, 2 * slots);
    uint64_t there = 0;
    for (uint64_t i = 0; i < slots; ++i) {
      CAPTURE(i);
      REQUIRE(rows[i] == longer[2 * i]);
      int32_t length = -1;
      std::memcpy(&length, planned.data() + layout->windows[one].lengths + 4 * i, sizeof length);
      REQUIRE(length == (rows[i] == kNone ? 0 : 1));
      there += static_cast<uint64_t>(length);
    }
    CHECK(there > 0);
    CHECK(there < slots);
  }
}

TEST_CASE("what is named already is left alone, and its window's rows are the anchors") {
  const auto shard = make_content(small_columns(), 4, 420);
  const UploadedShard uploaded(*shard);
  const std::vector<Anchor> anchors = stored_steps(shard->index());
  std::vector<uint32_t> slots;
  for (const Anchor& anchor : anchors) {
    slots.push_back(static_cast<uint32_t>(shard->index().slot(anchor)));
  }
  for (const bool longer : {false, true}) {
    std::vector<Output> outputs = {{"x", 0, 0, 1}, {"y", 1, 0, 1}};
    if (longer) {
      outputs.push_back({"z", 2, -1, 2});
    }
    const auto layout =
        std::make_shared<BatchLayout>(shard->schema(), outputs, slots.size(), false);
    const gear::base::Stream stream(kDevice);
    DevicePlan plan(layout, shard->layout(), shard->index().num_slots(), kDevice);
    REQUIRE(plan.anchors_window() == layout->window_of[0]);
    GEAR_CUDA_TRY(cudaMemcpy(plan.slots(), slots.data(), 4 * slots.size(), cudaMemcpyHostToDevice));
    GEAR_CUDA_TRY(cudaDeviceSynchronize());
    const GuardedBlock whole(layout->bytes);
    plan.launch(uploaded.view, Unit::kStep, slots.size(), whole.get(), nullptr, stream);
    stream.synchronize();
    std::vector<std::vector<uint32_t>> rows;
    for (const RowList& list : plan.rows()) {
      rows.push_back(download(list.slots, list.count));
    }
    CHECK(rows[*plan.anchors_window()] == slots);

    const GuardedBlock rest(layout->bytes);
    plan.launch(uploaded.view, Unit::kStep, slots.size(), rest.get(), nullptr, stream, 0, true);
    stream.synchronize();
    REQUIRE(plan.rows().size() == rows.size());
    for (size_t w = 0; w < rows.size(); ++w) {
      CHECK(download(plan.rows()[w].slots, plan.rows()[w].count) == rows[w]);
    }
    // Of what the whole plan writes, ids and the anchors' window are as they were: poison.
    const std::vector<std::byte> written = whole.read();
    const std::vector<std::byte> left = rest.read();
    const auto same = [&](uint64_t begin, uint64_t bytes) {
      return std::memcmp(written.data() + begin, left.data() + begin, bytes) == 0;
    };
    const auto poison = [&](uint64_t begin, uint64_t bytes) {
      return std::all_of(left.begin() + static_cast<std::ptrdiff_t>(begin),
                         left.begin() + static_cast<std::ptrdiff_t>(begin + bytes),
                         [](std::byte b) { return b == std::byte{kPoison}; });
    };
    CHECK(poison(layout->ids, 8 * slots.size()));
    for (size_t w = 0; w < rows.size(); ++w) {
      const BatchLayout::SharedWindow& shared = layout->windows[w];
      if (w == *plan.anchors_window()) {
        CHECK(poison(shared.lengths, 4 * slots.size()));
        CHECK(poison(shared.mask, slots.size()));
      } else {
        CHECK(same(shared.lengths, 4 * slots.size()));
        CHECK(same(shared.mask, slots.size() * shared.window.length()));
      }
    }
  }
}

TEST_CASE("as many slots as an id can name are refused") {
  const auto shard = make_content(small_columns(), 4, 100);
  const auto layout = std::make_shared<BatchLayout>(shard->schema(),
                                                    std::vector<Output>{{"x", 0, -1, 2}}, 2, false);
  CHECK_THROWS_AS(DevicePlan(layout, shard->layout(), uint64_t{1} << 32, kDevice),
                  gear::base::InvalidArgument);
}

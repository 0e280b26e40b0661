// Folds against a slow sum that knows nothing of pages, runs and threads: to the bit.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "deliver/block_pool.h"
#include "expect_message.h"
#include "gather/gather_cpu.h"
#include "plan/output.h"
#include "varied_content.h"

using namespace gear::plan;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;
using gear::base::ThreadPool;
using gear::gather::gather_cpu;

namespace {

constexpr size_t kReward = 1;
constexpr size_t kRewards = 2;  // three of a step
constexpr uint64_t kPageSteps = 4;

// Of any size and sign, and now and then what is no common number.
float number_of(uint64_t uid, uint64_t step, size_t column, uint64_t v) {
  constexpr float kOdd[] = {0.0F,
                            -0.0F,
                            std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::infinity(),
                            std::bit_cast<float>(0xFFC12345U)};  // a NaN with a payload
  const gear::base::Draw128 draw = gear::base::philox(uid, step, 64 * column + v);
  if (draw.hi % 64 < 6) {
    return kOdd[draw.hi % 64];
  }
  return std::ldexp(static_cast<float>(static_cast<int32_t>(draw.lo)),
                    static_cast<int>(draw.hi % 40) - 50);
}

// Episodes of 1 to 30 steps, the first ones evicted, one without an end; every second of the others
// has a closing step, every fourth one with rewards.
class Content {
 public:
  explicit Content(uint64_t capacity) {
    ShardOptions options;
    options.page_steps = kPageSteps;
    options.capacity = capacity;
    shard = std::make_shared<Shard>(
        Schema({{"a", {}, DType::kU8}, {"r", {}, DType::kF32}, {"q", {3}, DType::kF32}}), options);
    open_ = std::make_unique<Writer>(shard);
    append(*open_, 0, 7);
    writer_ = std::make_unique<Writer>(shard);
    for (uint64_t steps = 0, i = 0; steps < capacity * 3 / 2; ++i) {
      const uint64_t length = 1 + gear::base::philox(3, 0, i).lo % 30;
      append(*writer_, 0, length);
      end(i, length);
      steps += length;
    }
  }

  std::shared_ptr<Shard> shard;

 private:
  struct Rows {
    std::vector<uint8_t> a;
    std::vector<float> r;
    std::vector<float> q;

    Rows(uint64_t uid, uint64_t first, uint64_t count) : a(count) {
      for (uint64_t step = first; step < first + count; ++step) {
        r.push_back(number_of(uid, step, kReward, 0));
        for (uint64_t v = 0; v < 3; ++v) {
          q.push_back(number_of(uid, step, kRewards, v));
        }
      }
    }
    std::vector<const std::byte*> columns() const {
      return {reinterpret_cast<const std::byte*>(a.data()),
              reinterpret_cast<const std::byte*>(r.data()),
              reinterpret_cast<const std::byte*>(q.data())};
    }
  };

  void append(Writer& writer, uint64_t first, uint64_t count) {
    ++uid_;
    writer.append(Rows(uid_, first, count).columns(), count, {});
    REQUIRE(writer.episode_uid() == uid_);
  }

  void end(uint64_t i, uint64_t step) {
    const Rows closing(uid_, step, 1);
    std::vector<const std::byte*> columns;
    if (i % 2 == 0) {
      columns = closing.columns();
      if (i % 4 == 0) {
        columns[kReward] = nullptr;
        columns[kRewards] = nullptr;
      }
    }
    writer_->end_episode(i % 3 == 0 ? EpisodeState::kTruncated : EpisodeState::kTerminated, -1.0,
                         columns);
  }

  uint64_t uid_ = 0;
  std::unique_ptr<Writer> open_;
  std::unique_ptr<Writer> writer_;
};

// The sum of one value, as fold.h says, step by step.
float slow_sum(const Index& index, Anchor anchor, const Fold& fold, uint64_t v) {
  const Page& page = index.page(anchor.page);
  const Episode& episode = index.episode(page.episode);
  const uint64_t end = episode.end + (episode.closing_columns >> fold.column & 1);
  volatile float sum = 0.0F;  // nothing is fused or kept in more bits
  volatile float power = 1.0F;
  for (uint64_t k = 0; k < fold.n; ++k) {
    const uint64_t step = page.first_step + anchor.row + k;
    if (step < end) {
      volatile const float product = power * number_of(episode.uid, step, fold.column, v);
      sum = sum + product;
    }
    power = power * fold.factor;
  }
  return std::isnan(sum) ? std::bit_cast<float>(0x7FC00000U) : sum;
}

Batch poisoned(std::shared_ptr<const BatchLayout> layout) {
  Batch batch;
  batch.layout = std::move(layout);
  batch.block = gear::deliver::host_block(batch.layout->bytes);
  std::memset(batch.block.get(), kPoison, batch.layout->bytes);
  return batch;
}

gear::select::Selection select(const Index& index, uint64_t items, uint64_t round) {
  const std::vector<Anchor> anchors = all_steps(index);
  gear::select::Selection chosen;
  for (uint64_t i = 0; i < items; ++i) {
    chosen.add(anchors[gear::base::philox(round, 1, i).lo % anchors.size()], 1.0F);
  }
  return chosen;
}

// Every fold of the batch; behind its last item nothing changed.
void expect_sums(const Index& index, const Batch& batch, const gear::select::Selection& chosen) {
  const BatchLayout& layout = *batch.layout;
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    if (!layout.outputs[o].fold) {
      continue;
    }
    CAPTURE(o);
    const Fold& fold = *layout.outputs[o].fold;
    const uint64_t values = layout.row_bytes[o] / sizeof(float);
    REQUIRE(batch.delivered_rows(o) == chosen.size());
    const float* const sums = batch.at<float>(layout.data[o]);
    for (uint64_t i = 0; i < chosen.size(); ++i) {
      for (uint64_t v = 0; v < values; ++v) {
        CAPTURE(i);
        REQUIRE(std::bit_cast<uint32_t>(sums[i * values + v]) ==
                std::bit_cast<uint32_t>(slow_sum(index, chosen.anchors[i], fold, v)));
      }
    }
    const auto* const bytes = batch.at<uint8_t>(layout.data[o]);
    for (uint64_t b = chosen.size() * layout.row_bytes[o];
         b < layout.batch_size * layout.row_bytes[o]; ++b) {
      REQUIRE(bytes[b] == kPoison);
    }
  }
}

// Folds, one of which shares its window with the steps that it adds, beside other outputs.
std::vector<Output> folds(uint32_t n, float factor) {
  return {{"a", 0, 0, 1},
          {"sum", Fold{kReward, n, factor}},
          {"steps", kReward, 0, int64_t{n}},
          {"sums", Fold{kRewards, n, factor}},
          {"again", Fold{kReward, n, 2.0F * factor}},
          {"history", kRewards, -3, 1}};
}

}  // namespace

TEST_CASE("fold: sums are those of a slow loop, to the bit") {
  const Content content(300);
  Shard& shard = *content.shard;
  REQUIRE(shard.index().state().counters.steps_evicted > 0);
  ThreadPool pool(1);
  Plan plan;
  uint64_t round = 0;
  for (const uint32_t n : {1, 2, 3, 5, 8, 30, 300}) {
    for (const float factor : {0.99F, 1.0F, -0.5F, 0.0F, 3e9F}) {
      for (const bool packed : {false, true}) {
        CAPTURE(n);
        CAPTURE(factor);
        CAPTURE(packed);
        const std::vector<Output> outputs = folds(n, factor);
        check_outputs(outputs, shard.schema(), 41, shard.index().num_slots());
        const gear::select::Selection chosen = select(shard.index(), 40, ++round);
        Batch batch = poisoned(std::make_shared<BatchLayout>(shard.schema(), outputs, 41, packed));
        REQUIRE(batch.layout->window_of[1] == batch.layout->window_of[2]);
        make_plan(shard.index(), shard.layout(), chosen, batch, plan);
        gather_cpu(shard.data(), shard.layout(), plan, batch, pool);
        expect_sums(shard.index(), batch, chosen);
      }
    }
  }
}

TEST_CASE("fold: what stands beside a fold is what it is without one") {
  const Content content(300);
  Shard& shard = *content.shard;
  ThreadPool pool(1);
  Plan plan;
  for (const bool packed : {false, true}) {
    const gear::select::Selection chosen = select(shard.index(), 50, 1);
    const std::vector<Output> all = folds(6, 0.9F);
    const std::vector<Output> some = {all[0], all[2], all[5]};
    std::vector<Batch> batches;
    for (const std::vector<Output>& outputs : {all, some}) {
      batches.push_back(
          poisoned(std::make_shared<BatchLayout>(shard.schema(), outputs, 50, packed)));
      make_plan(shard.index(), shard.layout(), chosen, batches.back(), plan);
      gather_cpu(shard.data(), shard.layout(), plan, batches.back(), pool);
    }
    const std::pair<size_t, size_t> same[] = {{0, 0}, {2, 1}, {5, 2}};
    for (const auto& [with, without] : same) {
      const BatchLayout& layout = *batches[0].layout;
      const BatchLayout& other = *batches[1].layout;
      const uint64_t bytes = batches[0].delivered_rows(with) * layout.row_bytes[with];
      REQUIRE(bytes == batches[1].delivered_rows(without) * other.row_bytes[without]);
      CHECK(std::memcmp(batches[0].at<std::byte>(layout.data[with]),
                        batches[1].at<std::byte>(other.data[without]), bytes) == 0);
    }
  }
}

TEST_CASE("fold: threads share the items, never the runs of one") {
  const Content content(2000);
  Shard& shard = *content.shard;
  constexpr uint64_t kItems = 6000;
  ThreadPool pool(4);
  Plan plan;
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    const gear::select::Selection chosen = select(shard.index(), kItems, 2);
    Batch batch = poisoned(std::make_shared<BatchLayout>(
        shard.schema(), std::vector<Output>{{"sums", Fold{kRewards, 30, 0.97F}}}, kItems, packed));
    make_plan(shard.index(), shard.layout(), chosen, batch, plan);
    batch.bytes = 64 << 20;  // what it says that it moves: as many tasks as there can be
    gather_cpu(shard.data(), shard.layout(), plan, batch, pool);
    expect_sums(shard.index(), batch, chosen);
  }
}

TEST_CASE("fold: rows that came packed are folded where they are unpacked") {
  const Content content(300);
  Shard& shard = *content.shard;
  const PageLayout& pages = shard.layout();
  ThreadPool pool(2);
  Plan plan;
  for (const bool packed : {false, true}) {
    CAPTURE(packed);
    const gear::select::Selection chosen = select(shard.index(), 60, 3);
    const auto layout = std::make_shared<BatchLayout>(shard.schema(), folds(9, 0.95F), 61, packed);
    Batch batch = poisoned(layout);
    make_plan(shard.index(), pages, chosen, batch, plan);
    Plan to_pack;
    Plan to_unpack;
    Plan padding;
    std::vector<uint64_t> rows_of_windows;
    for (size_t w = 0; w < plan.num_windows(); ++w) {
      to_pack.begin_window(plan.runs(w).size());
      to_unpack.begin_window(plan.runs(w).size());
      padding.begin_window(plan.runs(w).size());
      uint32_t row = 0;
      for (const Run& run : plan.runs(w)) {
        if (run.page == kNone) {
          padding.add(run);
          continue;
        }
        to_pack.add({run.page, run.row, run.count, row});
        to_unpack.add({0, row, run.count, run.target});
        row += run.count;
      }
      rows_of_windows.push_back(row);
    }
    const PackedRows rows(*layout, pages, rows_of_windows);
    std::vector<std::byte> sent(rows.bytes);
    gear::gather::pack_cpu(shard.data(), pages, *layout, to_pack, rows, sent.data(), pool);
    gather_cpu(nullptr, pages, padding, batch, pool);
    gear::gather::unpack_cpu(sent.data(), rows, pages, to_unpack, batch, pool);
    expect_sums(shard.index(), batch, chosen);
  }
}

TEST_CASE("fold: it may be drawn when n - 1 steps follow, as its window may") {
  const std::vector<Output> step = {{"a", 0, 0, 1}};
  for (const uint32_t n : {1, 2, 7}) {
    std::vector<Output> outputs = step;
    outputs.emplace_back("sum", Fold{kReward, n, 0.9F});
    CHECK(lookahead(outputs) == n - 1);
    CHECK(lookahead(outputs) == lookahead({{"steps", kReward, 0, int64_t{n}}}));
  }
}

TEST_CASE("fold: what cannot be summed is refused") {
  const Schema schema({{"a", {}, DType::kU8}, {"r", {}, DType::kF32}, {"d", {}, DType::kF64}});
  const auto expect_refused = [&](const Fold& fold, const char* part) {
    CAPTURE(part);
    expect_message<gear::base::InvalidArgument>(
        [&] { check_outputs({{"sum", fold}}, schema, 2, 100); }, "[loader] output 'sum'", part);
  };
  expect_refused({0, 3, 0.9F}, "column 'a' is uint8");
  expect_refused({2, 3, 0.9F}, "column 'd' is float64");
  expect_refused({1, 0, 0.9F}, "over 0 steps: 1 to 100 are allowed");
  expect_refused({1, 101, 0.9F}, "over 101 steps: 1 to 100 are allowed");
  expect_refused({1, 3, std::numeric_limits<float>::infinity()}, "a finite number");
  expect_refused({1, 3, std::numeric_limits<float>::quiet_NaN()}, "a finite number");
  CHECK_NOTHROW(check_outputs({{"sum", Fold{1, 100, 0.9F}}}, schema, 2, 100));
}

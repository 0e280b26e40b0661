#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deliver/make_source.h"
#include "described_rows.h"
#include "expect_message.h"

using namespace gear::plan;
using namespace gear::deliver;
using namespace gear::store;
using gear::select::Policy;
using gear::store::Writer;
using Next = Pipeline::Next;

using namespace gear::testing;

namespace {

LoaderOptions loader_options(uint64_t batch_size, bool packed = false,
                             Policy policy = Policy::kUniform) {
  LoaderOptions options;
  options.outputs = windows();
  options.batch_size = batch_size;
  options.packed = packed;
  options.sampler.policy = policy;
  options.sampler.seed = 9;
  options.hand_over_bytes = 0;  // these batches are tiny: the own thread gathers them all the same
  return options;
}

std::vector<std::byte> bytes_of(const Batch& batch) {
  return {batch.block.get(), batch.block.get() + batch.layout->bytes};
}

}  // namespace

TEST_CASE("a loader delivers whole windows, padded and packed, under every policy") {
  const auto shard = std::make_shared<Shard>(schema(), options_of(200));
  Writer writer(shard);
  for (uint64_t episode = 0; episode < 40; ++episode) {
    add_episode(writer, episode, 1 + episode % 9);
  }
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential,
                              Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    for (const bool packed : {false, true}) {
      for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
        LoaderOptions options = loader_options(13, packed, policy);
        options.sampler.unit = unit;
        const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, options});
        Batch batch;
        for (int i = 0; i < 3; ++i) {
          REQUIRE(pipeline->next(std::nullopt, batch) != Next::kTimedOut);
          REQUIRE(wrong_rows(batch) == 0);
        }
        if (policy == Policy::kSequential) {
          continue;
        }
        CHECK(pipeline->stats().batches == 3);
        CHECK(pipeline->stats().items == 39);
      }
    }
  }
}

TEST_CASE("with nothing to draw the message says what is missing") {
  const auto shard = std::make_shared<Shard>(schema(), options_of(40));
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, loader_options(4)});
  Batch batch;
  expect_message<gear::base::InvalidArgument>([&] { pipeline->next(1.0, batch); },
                                              "nothing to sample", "0 steps in 0 episodes",
                                              "once 2 steps follow it");
  Writer writer(shard);
  append(writer, 0, 0, 2);
  CHECK_THROWS_AS(pipeline->next(1.0, batch), gear::base::InvalidArgument);
  append(writer, 0, 2, 1);
  REQUIRE(pipeline->next(60.0, batch) == Next::kBatch);
  CHECK(wrong_rows(batch) == 0);
}

TEST_CASE("neither prefetching nor who gathers changes what is delivered") {
  std::vector<std::vector<std::byte>> wanted;
  for (const auto& [prefetch, hand_over_bytes] :
       {std::pair<uint64_t, uint64_t>{0, 0}, {1, 0}, {5, 0}, {0, 1 << 20}, {5, 1 << 20}}) {
    const auto shard = std::make_shared<Shard>(schema(), options_of(100));
    Writer writer(shard);
    for (uint64_t episode = 0; episode < 8; ++episode) {
      add_episode(writer, episode, 10);
    }
    LoaderOptions options = loader_options(8, false, Policy::kWeighted);
    options.prefetch = prefetch;
    options.hand_over_bytes = hand_over_bytes;
    const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, options});
    for (size_t i = 0; i < 20; ++i) {
      Batch batch;
      REQUIRE(pipeline->next(std::nullopt, batch) == Next::kBatch);
      if (wanted.size() == i) {
        wanted.push_back(bytes_of(batch));
      } else {
        REQUIRE(bytes_of(batch) == wanted[i]);
      }
    }
  }
}

TEST_CASE("a restored loader continues to the bit, prefetched batches and all") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential}) {
    const auto shard = std::make_shared<Shard>(schema(), options_of(100));
    Writer writer(shard);
    for (uint64_t episode = 0; episode < 8; ++episode) {
      add_episode(writer, episode, 10);
    }
    const std::unique_ptr<Pipeline> first =
        make_pipeline(shard, {*shard, loader_options(10, false, policy)});
    Batch batch;
    for (int i = 0; i < 4; ++i) {
      REQUIRE(first->next(std::nullopt, batch) == Next::kBatch);
    }
    const Pipeline::State state = first->state();
    CHECK(state.pending.size() == 2);
    const std::unique_ptr<Pipeline> second =
        make_pipeline(shard, {*shard, loader_options(10, false, policy)});
    REQUIRE(second->next(std::nullopt, batch) == Next::kBatch);  // dropped by restore
    second->restore(state);
    for (int i = 0; i < 20; ++i) {
      Batch other;
      const Next next = first->next(std::nullopt, batch);
      REQUIRE(second->next(std::nullopt, other) == next);
      if (next == Next::kBatch) {
        REQUIRE(bytes_of(batch) == bytes_of(other));
      }
    }
    const std::unique_ptr<Pipeline> smaller =
        make_pipeline(shard, {*shard, loader_options(9, false, policy)});
    expect_message<gear::base::InvalidArgument>([&] { smaller->restore(state); }, "saved with");
  }
}

TEST_CASE("batches outlive their loader, their shard and its writers") {
  std::deque<Batch> batches;
  {
    const auto shard = std::make_shared<Shard>(schema(), options_of(60));
    Writer writer(shard);
    for (uint64_t episode = 0; episode < 9; ++episode) {
      add_episode(writer, episode, 5);
    }
    const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, loader_options(16)});
    for (int i = 0; i < 5; ++i) {
      batches.emplace_back();
      REQUIRE(pipeline->next(std::nullopt, batches.back()) == Next::kBatch);
    }
    batches.push_back(
        collect_ids(*shard, {batches[0].at<int64_t>(batches[0].layout->ids)[3]}, windows(), true));
  }
  for (const Batch& batch : batches) {
    CHECK(wrong_rows(batch) == 0);
  }
}

TEST_CASE("collected ids come in the order given, and stale ones are refused") {
  const auto shard = std::make_shared<Shard>(schema(), options_of(40));
  Writer writer(shard);
  add_episode(writer, 1, 8);
  std::vector<int64_t> ids;
  for (const uint32_t slot : {7U, 0U, 3U, 3U}) {
    ids.push_back(shard->index().id({slot / 4, slot % 4}, Unit::kStep));
  }
  const Batch batch = collect_ids(*shard, ids, windows(), false);
  CHECK(wrong_rows(batch) == 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    CHECK(batch.at<int64_t>(batch.layout->ids)[i] == ids[i]);
    CHECK(batch.at<Row>(batch.layout->data[0])[i].numbers[1] == StepId::unpack(ids[i]).slot);
  }
  for (uint64_t episode = 2; episode < 10; ++episode) {
    add_episode(writer, episode, 8);
  }
  CHECK_THROWS_AS(collect_ids(*shard, ids, windows(), false), gear::base::InvalidArgument);
}

TEST_CASE("a loader waits for the rate limit and is woken by an append") {
  ShardOptions options = options_of(100);
  options.rate_limiter = RateLimiter(1, 8, 8);
  const auto shard = std::make_shared<Shard>(schema(), options);
  LoaderOptions wanted = loader_options(8);
  wanted.prefetch = 0;
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
  Batch batch;
  CHECK(pipeline->next(0.0, batch) == Next::kTimedOut);
  CHECK(pipeline->next(0.02, batch) == Next::kTimedOut);
  std::thread appender([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Writer writer(shard);
    add_episode(writer, 0, 8);
  });
  CHECK(pipeline->next(60.0, batch) == Next::kBatch);
  appender.join();
  CHECK(wrong_rows(batch) == 0);
  CHECK(pipeline->next(0.02, batch) == Next::kTimedOut);
  CHECK(pipeline->stats().wait_s > 0.03);
}

TEST_CASE("more batches in flight than anybody needs are refused") {
  const auto shard = std::make_shared<Shard>(schema(), options_of(100));
  LoaderOptions wanted = loader_options(8);
  wanted.prefetch = kMostPrefetch;
  CHECK_NOTHROW(make_pipeline(shard, {*shard, wanted}));
  for (const uint64_t prefetch : {kMostPrefetch + 1, UINT64_MAX - 1, UINT64_MAX}) {
    wanted.prefetch = prefetch;
    expect_message<gear::base::InvalidArgument>([&] { make_pipeline(shard, {*shard, wanted}); },
                                                "[loader] prefetch " + std::to_string(prefetch),
                                                "0 to 1024");
  }
}

TEST_CASE("a batch for which there is no memory takes nothing from the buffer") {
  ShardOptions options = options_of(8);
  options.max_times_sampled = 1;
  const auto shard = std::make_shared<Shard>(schema(), options);
  Writer writer(shard);
  add_episode(writer, 1, 8);
  LoaderOptions wanted = loader_options(8, false, Policy::kFifo);
  const auto wanted_outputs = wanted.outputs;
  // 32 TiB: more than any process is given.
  const std::vector<Output> huge(1 << 9, Output{"row", 0, 1 - (1 << 27), 1});
  wanted.outputs.clear();
  for (size_t i = 0; i < huge.size(); ++i) {
    wanted.outputs.push_back(huge[i]);
    wanted.outputs.back().name = std::to_string(i);
  }
  const std::unique_ptr<Pipeline> too_large = make_pipeline(shard, {*shard, wanted});
  Batch batch;
  for (int i = 0; i < 2; ++i) {
    CHECK_THROWS_AS(too_large->next(1.0, batch), gear::base::OutOfMemory);
  }
  wanted.outputs = wanted_outputs;
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
  REQUIRE(pipeline->next(60.0, batch) == Next::kBatch);
  CHECK(batch.items == 8);
  CHECK(wrong_rows(batch) == 0);
}

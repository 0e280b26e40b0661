// Pages on one GPU, batches on another: rows are flushed where the pages lie, the index is kept
// where batches are planned.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/gpu/devices.h"
#include "deliver/cuda/device_block.h"
#include "deliver/make_source.h"
#include "described_rows.h"

using namespace gear;
using namespace gear::testing;
using deliver::LoaderOptions;
using deliver::Pipeline;
using plan::Batch;
using select::Policy;

namespace {

constexpr uint64_t kEpisodeSteps = 9;

std::shared_ptr<store::Shard> make_shard() {
  store::ShardOptions options = options_of(400);
  options.tier = memory::Tier::kDevice;
  options.device = 0;
  return std::make_shared<store::Shard>(schema(), options);
}

LoaderOptions options_of(int device, Policy policy) {
  LoaderOptions options;
  options.outputs = windows();
  options.batch_size = 64;
  options.prefetch = 2;
  options.device = device;
  options.sampler.policy = policy;
  options.sampler.seed = 7;
  return options;
}

// Of the next batch, on the host.
uint64_t wrong_rows_of_next(Pipeline& pipeline) {
  Batch batch;
  REQUIRE(pipeline.next(1.0, batch) == Pipeline::Next::kBatch);
  const auto block = std::static_pointer_cast<deliver::DeviceBlock>(batch.delivery);
  block->wait();
  const std::shared_ptr<std::byte> copy(new std::byte[batch.layout->bytes],
                                        std::default_delete<std::byte[]>());
  block->read({copy.get(), batch.layout->bytes});
  batch.block = copy;
  return wrong_rows(batch);
}

std::vector<int> mirrors_of(store::Shard& shard) {
  const auto lock = shard.lock();
  std::vector<int> devices;
  for (const auto& mirror : shard.mirrors().all()) {
    devices.push_back(mirror->device());
  }
  return devices;
}

}  // namespace

TEST_CASE("pages on a GPU that nobody draws from have no index there") {
  const auto shard = make_shard();
  store::Writer writer(shard);
  for (uint64_t episode = 0; episode < 100; ++episode) {
    add_episode(writer, episode, kEpisodeSteps);
  }
  CHECK(mirrors_of(*shard).empty());
  const auto pipeline = deliver::make_pipeline(shard, {*shard, options_of(0, Policy::kUniform)});
  CHECK(wrong_rows_of_next(*pipeline) == 0);
  CHECK(mirrors_of(*shard) == std::vector<int>{0});
}

TEST_CASE("batches on another GPU than the pages': the index is on that one alone") {
  const int other = base::device_count() - 1;
  if (other == 0) {
    MESSAGE("skipped: one GPU");
    return;
  }
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted}) {
    CAPTURE(static_cast<int>(policy));
    const auto shard = make_shard();
    store::Writer writer(shard);
    uint64_t episode = 0;
    add_episode(writer, episode++, kEpisodeSteps);
    const auto there = deliver::make_pipeline(shard, {*shard, options_of(other, policy)});
    // Pages are taken anew all the while that batches of them are on their way.
    for (int turn = 0; turn < 200; ++turn) {
      add_episode(writer, episode++, kEpisodeSteps);
      CHECK(wrong_rows_of_next(*there) == 0);
    }
    CHECK(mirrors_of(*shard) == std::vector<int>{other});
    const auto here = deliver::make_pipeline(shard, {*shard, options_of(0, policy)});
    for (int turn = 0; turn < 200; ++turn) {
      add_episode(writer, episode++, kEpisodeSteps);
      CHECK(wrong_rows_of_next(*there) == 0);
      CHECK(wrong_rows_of_next(*here) == 0);
    }
    CHECK(mirrors_of(*shard) == std::vector<int>{other, 0});
  }
}

// Pages that a batch spends are not written again before that batch has been copied.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "deliver/make_source.h"
#include "store/writing/writer.h"

using namespace gear::plan;
using namespace gear::deliver;
using namespace gear::store;
using gear::store::Writer;

namespace {

constexpr uint64_t kRowNumbers = 1 << 17;  // 1 MiB: copying a batch takes milliseconds
constexpr uint64_t kSteps = 8;             // of an episode, and of the only page

// Rows of one number, and of another in the next episode; pauses in which a batch may be drawn.
void write_until(const std::atomic<bool>& stop, const std::shared_ptr<Shard>& shard) {
  const std::vector<uint64_t> rows[] = {std::vector<uint64_t>(kSteps * kRowNumbers, 1),
                                        std::vector<uint64_t>(kSteps * kRowNumbers, 2)};
  Writer writer(shard);
  for (uint64_t episode = 0; !stop; ++episode) {
    const std::byte* columns[] = {reinterpret_cast<const std::byte*>(rows[episode % 2].data())};
    writer.append(columns, kSteps, {});
    writer.end_episode(EpisodeState::kTerminated, -1.0, {});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace

TEST_CASE("a page that a batch has spent is written again only when the batch is copied") {
  ShardOptions options;
  options.page_steps = kSteps;
  options.capacity = kSteps;
  options.max_times_sampled = 1;
  const auto shard = std::make_shared<Shard>(
      Schema({{"row", {static_cast<int64_t>(kRowNumbers)}, gear::base::DType::kU64}}), options);
  LoaderOptions wanted;
  wanted.outputs = {{"row", 0, 0, 1, Pad::kBoth, false}};
  wanted.batch_size = kSteps;
  wanted.sampler.policy = gear::select::Policy::kFifo;
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
  std::atomic<bool> stop{false};
  std::thread writer([&] { write_until(stop, shard); });
  uint64_t torn = 0;
  for (int batches = 0; batches < 200;) {
    Batch batch;
    try {
      pipeline->next(std::nullopt, batch);
    } catch (const gear::base::InvalidArgument&) {
      std::this_thread::yield();  // the writer has not got that far
      continue;
    }
    ++batches;
    for (uint64_t item = 0; item < batch.items; ++item) {
      const auto* row = batch.at<uint64_t>(batch.layout->data[0]) + item * kRowNumbers;
      torn += !std::equal(row + 1, row + kRowNumbers, row);
    }
  }
  stop = true;
  writer.join();
  CHECK(torn == 0);
}

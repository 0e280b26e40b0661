// Writers, collectors, priority updates and saves at once; made for ThreadSanitizer.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deliver/make_source.h"
#include "described_rows.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/checkpoint/snapshot.h"
#include "temporary_folder.h"

using namespace gear::plan;
using namespace gear::deliver;
using namespace gear::store;
using namespace gear::testing;
using gear::select::Policy;
using gear::store::Writer;
using Next = Pipeline::Next;

namespace {

// Ids that collectors have seen and the updater uses, some of them stale by then.
class SeenIds {
 public:
  void add(const Batch& batch) {
    const std::lock_guard guard(mutex_);
    const auto* ids = batch.at<int64_t>(batch.layout->ids);
    ids_.assign(ids, ids + batch.items);
  }
  std::vector<int64_t> take() {
    const std::lock_guard guard(mutex_);
    return ids_;
  }

 private:
  std::mutex mutex_;
  std::vector<int64_t> ids_;
};

// Runs the bodies, each in a thread; what they throw counts as one failure.
uint64_t run_all(const std::vector<std::function<void()>>& bodies, std::atomic<bool>& stop) {
  std::atomic<uint64_t> failures{0};
  std::vector<std::thread> threads;
  for (const auto& body : bodies) {
    threads.emplace_back([&] {
      try {
        body();
      } catch (const std::exception& error) {
        MESSAGE(std::string(error.what()));
        ++failures;
        stop = true;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return failures;
}

uint64_t wrong_rows_stored(Shard& shard) {
  uint64_t wrong = 0;
  const IndexState& state = shard.index().state();
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    for (uint32_t p = state.episodes[e].head; p != kNone; p = state.pages[p].next) {
      for (uint32_t row = 0; row < state.pages[p].rows; ++row) {
        Row there(0, 0);
        std::memcpy(&there, shard.data() + shard.layout().offset(p, 0, row), sizeof there);
        const Row wanted(there.numbers[0], state.pages[p].first_step + row);
        wrong += std::memcmp(&there, &wanted, sizeof there) != 0;
      }
    }
  }
  return wrong;
}

void write_until(const std::atomic<bool>& stop, const std::shared_ptr<Shard>& shard,
                 uint64_t number) {
  Writer writer(shard);
  for (uint64_t episode = number << 32; !stop; ++episode) {
    const uint64_t steps = 1 + episode % 23;
    for (uint64_t step = 0; step < steps;) {
      const uint64_t count = std::min<uint64_t>(steps - step, 1 + episode % 6);
      append(writer, episode, step, count);
      step += count;
    }
    const Row closing(episode, steps);
    const std::byte* columns[] = {reinterpret_cast<const std::byte*>(&closing), nullptr};
    writer.end_episode(EpisodeState::kTerminated, -1.0,
                       episode % 2 == 0 ? Writer::Rows(columns) : Writer::Rows());
  }
}

// `batches` batches by a row of collectors, destroyed with gathers in flight and batches alive.
uint64_t collect(const std::atomic<bool>& stop, const std::shared_ptr<Shard>& shard,
                 const LoaderOptions& options, int batches, SeenIds& seen) {
  uint64_t wrong = 0;
  std::deque<Batch> kept;
  std::unique_ptr<Pipeline> pipeline;
  for (int i = 0; i < batches && !stop; ++i) {
    if (i % 50 == 0) {
      pipeline = make_pipeline(shard, {*shard, options});
    }
    Batch batch;
    if (pipeline->next(60.0, batch) != Next::kBatch) {
      return ~uint64_t{0};
    }
    seen.add(batch);
    kept.push_back(std::move(batch));
    if (kept.size() < 8) {
      continue;
    }
    wrong += wrong_rows(kept.front());
    kept.pop_front();
  }
  pipeline.reset();
  for (const Batch& batch : kept) {
    wrong += wrong_rows(batch);
  }
  return wrong;
}

}  // namespace

TEST_CASE("writers, collectors, updates and saves share a shard under constant eviction") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    CAPTURE(static_cast<int>(evict));
    ShardOptions options = options_of(96);
    options.evict = evict;
    options.rate_limiter = RateLimiter(0, 1, 0);  // collectors wait for the first step
    const auto shard = std::make_shared<Shard>(schema(), options);
    const TemporaryFolder folder;
    std::atomic<bool> stop{false};
    std::atomic<int> collecting{2};
    std::atomic<uint64_t> wrong{0};
    SeenIds seen;
    const auto collecting_with = [&](Policy policy, bool packed) {
      return [&, policy, packed] {
        LoaderOptions wanted;
        wanted.outputs = windows();
        wanted.batch_size = 24;
        wanted.packed = packed;
        wanted.hand_over_bytes = packed ? 0 : wanted.hand_over_bytes;
        wanted.sampler.policy = policy;
        wrong += collect(stop, shard, wanted, 200, seen);
        if (--collecting == 0) {
          stop = true;
        }
      };
    };
    const uint64_t failures =
        run_all({[&] { write_until(stop, shard, 1); }, [&] { write_until(stop, shard, 2); },
                 [&] { write_until(stop, shard, 3); }, collecting_with(Policy::kWeighted, false),
                 collecting_with(Policy::kUniform, true),
                 [&] {
                   do {
                     save_shard(*shard, folder / "c");
                     wrong += wrong_rows_stored(*load_shard(folder / "c", {}, "", 0).shard);
                   } while (!stop);
                 },
                 [&] {
                   for (uint64_t round = 0; !stop; ++round) {
                     const std::vector<int64_t> ids = seen.take();
                     const std::vector<float> priorities(ids.size(), static_cast<float>(round % 7));
                     {
                       const auto lock = shard->lock();
                       shard->index().update(ids, priorities);
                     }
                     std::this_thread::sleep_for(std::chrono::microseconds(200));
                   }
                 }},
                stop);
    CHECK(failures == 0);
    CHECK(wrong == 0);
    CHECK(shard->index().state().counters.steps_evicted > 0);
    CHECK(wrong_rows_stored(*shard) == 0);
    CHECK_NOTHROW(check_index(shard->index()));
  }
}

TEST_CASE("two collectors on a queue deliver every step exactly once") {
  constexpr uint64_t kEpisodes = 150;
  constexpr uint64_t kSteps = 11;
  ShardOptions options = options_of(8192);
  options.max_times_sampled = 1;
  options.rate_limiter = RateLimiter(0, 1, 0);
  const auto shard = std::make_shared<Shard>(schema(), options);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> delivered{0};
  std::atomic<uint64_t> wrong{0};
  std::mutex mutex;
  std::set<std::pair<uint64_t, uint64_t>> steps;
  std::vector<std::function<void()>> bodies;
  for (const uint64_t number : {1, 2}) {
    bodies.push_back([&, number] {
      Writer writer(shard);
      for (uint64_t i = 0; i < kEpisodes; ++i) {
        add_episode(writer, number << 32 | i, kSteps);
      }
    });
    bodies.push_back([&, number] {
      LoaderOptions wanted;
      wanted.outputs = windows();
      wanted.batch_size = 7;
      wanted.sampler.policy = number == 1 ? Policy::kFifo : Policy::kUniform;
      const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
      while (!stop && delivered < 2 * kEpisodes * kSteps) {
        Batch batch;
        if (pipeline->next(0.01, batch) != Next::kBatch) {
          continue;
        }
        wrong += wrong_rows(batch);
        const std::lock_guard guard(mutex);
        for (uint64_t i = 0; i < batch.items; ++i) {
          const auto& row = batch.at<Row>(batch.layout->data[0])[i];
          steps.emplace(row.numbers[0], row.numbers[1]);
        }
        delivered += batch.items;
      }
    });
  }
  CHECK(run_all(bodies, stop) == 0);
  CHECK(wrong == 0);
  CHECK(delivered == 2 * kEpisodes * kSteps);
  CHECK(steps.size() == 2 * kEpisodes * kSteps);
  CHECK(shard->index().state().num_steps == 0);
}

#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/threads/own_thread.h"
#include "deliver/block_pool.h"
#include "deliver/pipeline.h"
#include "deliver/stage.h"
#include "group/pull/published_shards.h"
#include "group/pull/pulled_items.h"

namespace gear::group {

/// Batches that one rank draws from the shards of all ranks as they are published, alone: no call
/// of it is collective, and the owners of the steps may compute, sleep or be stopped.
///
///     caller's thread   draw: a number for batch k + prefetch ...  finish batch k
///     own thread              PulledItems: draw and read batch k + 1 | batch k + 2 | ...
///
/// What it delivers is what is published when it is drawn by the own thread.
class PullSource final : public deliver::Source {
 public:
  /// Throws InvalidArgument for a sampler that is not Uniform over steps, and for a shard that
  /// counts draws: with max_times_sampled or a rate limit.
  PullSource(std::shared_ptr<Peers> peers, std::shared_ptr<PublishedShards> shards,
             deliver::Request request);
  /// Gives up the batches in flight.
  ~PullSource() override;

  std::unique_ptr<deliver::Job> make_job() override;
  bool draw(deliver::Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(deliver::Job& job) override;
  void count(deliver::Job& job) override;
  void fill(deliver::Job& job, std::span<const std::byte> bytes) override;
  void drop() override;
  select::Law& law() override { return law_; }
  uint64_t batches_per_epoch() override { return 0; }
  void report(deliver::Stats& stats) override;

 private:
  struct Pull;  ///< a batch

  void run();
  void pull(Pull& job);

  std::shared_ptr<Peers> peers_;
  std::shared_ptr<PublishedShards> shards_;
  deliver::LoaderOptions options_;
  std::unique_ptr<deliver::Stage> stage_;  // null: batches stay in host memory
  std::shared_ptr<deliver::HostBlockPool> blocks_;
  std::unique_ptr<PulledItems> items_;  // of the own thread, and of draw() where none is in flight
  select::Law law_;

  std::mutex mutex_;  // of what follows, and of a job's state
  std::condition_variable changed_;
  std::deque<Pull*> queue_;
  bool stop_ = false;
  bool pulling_ = false;              // the own thread has a job
  std::atomic<bool> give_up_{false};  // that job; set and reset under the mutex
  double gather_s_ = 0;
  PulledItems::Counts counts_;
  std::vector<uint64_t> bytes_;  // delivered, by owner
  base::OwnThread thread_;
};

/// What a loader that pulls holds. Not collective. Throws InvalidArgument as PullSource does.
std::unique_ptr<deliver::Pipeline> make_pull_pipeline(std::shared_ptr<Peers> peers,
                                                      std::shared_ptr<PublishedShards> shards,
                                                      deliver::Request request);

}  // namespace gear::group

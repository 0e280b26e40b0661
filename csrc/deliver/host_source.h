#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/threads/thread_pool.h"
#include "deliver/block_pool.h"
#include "deliver/source.h"
#include "deliver/stage.h"
#include "plan/plan.h"

namespace gear::deliver {

/// Batches that the host's threads gather.
///
///     caller's thread   draw: select + plan batch k + prefetch, under the lock ... finish batch k
///     own thread                gather k + 1 | gather k + 2 | ...
///
/// Batches lie in host memory; with a stage, they pass through pinned memory to where it sends
/// them.
class HostSource final : public Source {
 public:
  /// Throws InvalidArgument as check_outputs and make_sampler do.
  HostSource(std::shared_ptr<store::Shard> shard, CollectorOptions options,
             std::unique_ptr<Stage> stage = nullptr);
  /// Waits for the gathers in flight.
  ~HostSource() override;

  std::unique_ptr<Job> make_job() override;
  bool draw(Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(Job& job, Job* next) override;
  void fill(Job& job, std::span<const std::byte> bytes) override;
  void set_beta(double beta) override;
  uint64_t batches_per_epoch() override;
  select::SamplerPosition position() override;
  void restore(const select::SamplerPosition& position) override;
  void report(Stats& stats) override;

 private:
  struct Gather : Job {
    select::Selection selection;
    plan::Plan plan;
    uint64_t ticket = 0;
    std::atomic<bool> done{true};  ///< set false by the caller's thread, true by the gathering one
  };

  void queue(Gather& job);
  void run();
  /// Copies what the job's plan says and marks it done; in either thread.
  void gather(Gather& job);

  std::shared_ptr<store::Shard> shard_;
  CollectorOptions options_;
  std::shared_ptr<HostBlockPool> blocks_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<select::Sampler> sampler_;
  base::ThreadPool& pool_;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Gather*> queue_;
  std::atomic<uint64_t> queued_{0};  ///< jobs ever queued: what the gathering thread spins on
  bool stop_ = false;
  bool worker_sleeps_ = false;
  bool caller_sleeps_ = false;
  double gather_s_ = 0;
  std::thread thread_;
};

}  // namespace gear::deliver

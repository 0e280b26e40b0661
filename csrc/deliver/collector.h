#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/threads/thread_pool.h"
#include "deliver/batch_source.h"
#include "deliver/block_pool.h"
#include "plan/plan.h"

namespace gear::deliver {

/// Takes a batch on from the host memory where a collector gathers it.
class Stage {
 public:
  virtual ~Stage() = default;

  /// The GPU that batches go to.
  virtual int device() const = 0;
  /// Sends the gathered batch on and puts its new block in place of the one it lies in; does not
  /// wait. Any thread.
  virtual void send(plan::Batch& batch) = 0;
};

/// Delivers batches: select, plan, gather.
///
///   caller's thread   next(): select + plan batch k + prefetch, under the lock ... deliver batch k
///   own thread                 gather k + 1 | gather k + 2 | ...
///
/// Batches lie in host memory; with a stage, they pass through pinned memory to where it sends
/// them.
class Collector final : public BatchSource {
 public:
  /// Throws InvalidArgument as check_outputs and make_sampler do.
  Collector(std::shared_ptr<store::Shard> shard, CollectorOptions options,
            std::unique_ptr<Stage> stage = nullptr);
  /// Waits for the gathers in flight.
  ~Collector() override;

  Next next(std::optional<double> timeout_s, plan::Batch& out) override;
  void set_beta(double beta) override;
  uint64_t batches_per_epoch() override;
  State state() override;
  void restore(const State& state) override;
  Stats stats() override;

  const plan::BatchLayout& layout() const { return *layout_; }

 private:
  struct Job {
    select::Selection selection;
    plan::Plan plan;
    plan::Batch batch;
    uint64_t ticket = 0;
    bool epoch_end = false;
    bool failed_to_draw = false;
    std::exception_ptr error;  ///< before `done`, by the gathering thread
    std::atomic<bool> done{false};
  };

  /// Draws and plans one batch; false when not allowed within timeout_s.
  bool issue(std::optional<double> timeout_s);
  void run();
  /// Copies what the job's plan says and marks it done; in either thread.
  void gather(Job& job);
  /// Returns when the job is done.
  void finish(Job& job);
  void drop_pending();

  std::shared_ptr<store::Shard> shard_;
  CollectorOptions options_;
  std::shared_ptr<const plan::BatchLayout> layout_;
  std::shared_ptr<BlockPool> blocks_;
  std::unique_ptr<Stage> stage_;
  std::unique_ptr<select::Sampler> sampler_;
  base::ThreadPool& pool_;

  std::deque<std::unique_ptr<Job>> pending_;  ///< in delivery order; the caller's
  std::vector<std::unique_ptr<Job>> idle_;    ///< finished jobs, kept for their memory

  std::mutex mutex_;  ///< of what follows
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Job*> queue_;
  std::atomic<uint64_t> queued_{0};  ///< jobs ever queued: what the gathering thread spins on
  bool stop_ = false;
  bool worker_sleeps_ = false;
  bool caller_sleeps_ = false;
  Stats stats_;
  std::thread thread_;
};

/// collect_ids() from memory that the host reads, to the host, in the calling thread.
plan::Batch collect_ids_by_host(store::Shard& shard, const std::vector<int64_t>& ids,
                                const std::vector<plan::Output>& outputs, bool packed);

}  // namespace gear::deliver

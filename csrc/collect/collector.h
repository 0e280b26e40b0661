#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "collect/batch.h"
#include "collect/plan.h"
#include "select/sampler.h"
#include "store/shard.h"

namespace gear::collect {

struct CollectorOptions {
  std::vector<Output> outputs;
  uint64_t batch_size = 0;
  bool packed = false;
  uint64_t prefetch = 2;  // batches in flight behind the one that is delivered
  select::SamplerOptions sampler;
};

// Delivers batches: select, plan, gather.
//
//   caller's thread   next(): select + plan batch k + prefetch, under the lock ... deliver batch k
//   own thread                 gather k + 1 | gather k + 2 | ...
//
// Selection happens in the caller's thread, at a fixed place in its sequence of appends, updates
// and next(): so a run is reproducible and prefetching never makes it depend on timing. Batch k is
// drawn during the call that delivers batch k - prefetch.
// One thread at a time may call a collector.
class Collector {
 public:
  // What next() ended with.
  enum class Next : uint8_t { kBatch, kEpochEnd, kTimedOut };

  // Throws InvalidArgument as check_outputs and make_sampler do.
  Collector(std::shared_ptr<store::Shard> shard, CollectorOptions options);
  // Waits for the gathers in flight.
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  // The next batch. Waits up to timeout_s until the rate limiter allows it and something may be
  // drawn; without a rate limiter, throws InvalidArgument when there is nothing to draw.
  Next next(std::optional<double> timeout_s, Batch& out);

  void set_beta(double beta);
  uint64_t batches_per_epoch();

  // Where the sequence of batches stands: the sampler's position and the batches drawn already but
  // not delivered, with their data (they may show steps that have been evicted since).
  struct PendingBatch {
    bool epoch_end = false;
    uint64_t items = 0;
    std::vector<uint64_t> rows;
    std::vector<std::byte> data;
  };
  struct State {
    select::SamplerPosition position;
    std::vector<PendingBatch> pending;
  };
  State state();
  // Continues from a state of a collector with the same options; throws InvalidArgument when the
  // options differ. Batches in flight are dropped.
  void restore(const State& state);

  const BatchLayout& layout() const { return *layout_; }

  struct Stats {
    uint64_t batches = 0;  // delivered
    uint64_t items = 0;
    uint64_t bytes = 0;   // copied out of the store
    double wait_s = 0;    // time next() waited for a gather or the rate limiter
    double gather_s = 0;  // time spent copying
  };
  Stats stats();

 private:
  struct Job {
    select::Selection selection;
    Plan plan;
    Batch batch;
    uint64_t ticket = 0;
    bool epoch_end = false;
    bool failed_to_draw = false;
    std::exception_ptr error;  // before `done`, by the gathering thread
    std::atomic<bool> done{false};
  };

  // Draws and plans one batch; false when not allowed within timeout_s.
  bool issue(std::optional<double> timeout_s);
  void run();
  // Copies what the job's plan says and marks it done; in either thread.
  void gather(Job& job);
  // Returns when the job is done.
  void finish(Job& job);
  void drop_pending();
  bool fits(const PendingBatch& pending) const;

  std::shared_ptr<store::Shard> shard_;
  CollectorOptions options_;
  std::shared_ptr<const BatchLayout> layout_;
  std::shared_ptr<BlockPool> blocks_;
  std::unique_ptr<select::Sampler> sampler_;
  base::ThreadPool& pool_;

  std::deque<std::unique_ptr<Job>> pending_;  // in delivery order; the caller's
  std::vector<std::unique_ptr<Job>> idle_;    // finished jobs, kept for their memory

  std::mutex mutex_;  // of what follows
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Job*> queue_;
  std::atomic<uint64_t> queued_{0};  // jobs ever queued: what the gathering thread spins on
  bool stop_ = false;
  bool worker_sleeps_ = false;
  bool caller_sleeps_ = false;
  Stats stats_;
  std::thread thread_;
};

// Delivers exactly the steps named, in the calling thread. Throws InvalidArgument for an id that
// is not stored.
Batch collect_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                  const std::vector<Output>& outputs, bool packed);

}  // namespace gear::collect

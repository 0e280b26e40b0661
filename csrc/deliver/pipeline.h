#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/threads/origin.h"
#include "deliver/source.h"

namespace gear::deliver {

/// What a loader holds: the queue of batches that are drawn but not delivered.
///
///     next()    draw batch k + prefetch ... deliver batch k
///     source             gather k + 1 | gather k + 2 | ...
///
/// That batch k is drawn during the call that delivers batch k - prefetch, in the caller's sequence
/// of appends, updates and next(), holds for every source: so a run is reproducible, the same on
/// every device, and prefetching never makes it depend on timing.
///
/// What is drawn counts when it is delivered: batches in flight are given back when the pipeline
/// ends or goes on from another state, whatever a buffer with max_times_sampled or a rate limit has
/// left then.
///
/// One thread at a time may call a pipeline, but for stats(). In a forked child every call is
/// refused with InvalidArgument, and destroying it leaves alone what the parent's threads have.
class Pipeline {
 public:
  /// What next() ended with.
  enum class Next : uint8_t { kBatch, kEpochEnd, kTimedOut };

  /// Where the sequence of batches stands: the sampler's position and the batches drawn already but
  /// not delivered, with their data (they may show steps that have been evicted since). The same
  /// for every source.
  struct PendingBatch {
    select::SamplerPosition before;  ///< where the sampler was when it drew this
    bool epoch_end = false;
    uint64_t items = 0;
    std::vector<uint64_t> rows;
    std::vector<std::byte> data;
    std::vector<uint64_t> uses;  ///< with max_times_sampled: what it drew of this rank's shard
    uint64_t draws = 0;          ///< how much that is
  };
  struct State {
    select::SamplerPosition position;
    std::vector<PendingBatch> pending;
  };

  Pipeline(std::unique_ptr<Source> source, uint64_t prefetch);
  /// Waits for what is in flight, and gives it back.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// The next batch. Waits up to timeout_s until the rate limiter allows it and something may be
  /// drawn; without a rate limiter, throws InvalidArgument when there is nothing to draw.
  Next next(std::optional<double> timeout_s, plan::Batch& out);

  /// Whether the others of its group wait for a rank that cannot go on: this one, after an error.
  bool out_of_step() const { return !origin_.forked() && in_->source->out_of_step(); }

  /// Before it is destroyed, where that may wait long: base::check_interrupt ends this wait.
  void end();

  void set_beta(double beta);
  uint64_t batches_per_epoch();

  State state();
  /// Throws InvalidArgument for a state whose batches are not of this pipeline's layout.
  void check(const State& state) const;
  /// Continues from a state of a pipeline with the same options, of whatever source; throws
  /// InvalidArgument when the options differ, and OutOfMemory: nothing has changed then. Batches in
  /// flight are given back.
  void restore(const State& state);

  /// From any thread.
  Stats stats();

 private:
  /// What a forked child leaves as it is.
  struct Flight {
    std::deque<std::unique_ptr<Job>> pending;  ///< in delivery order
    std::vector<std::unique_ptr<Job>> idle;    ///< delivered, kept for their memory
    std::unique_ptr<Source> source;            ///< ends before the jobs that it works at go
  };

  Source& source() const;
  bool draw(bool ahead, std::optional<double> timeout_s);
  std::unique_ptr<Job> idle_job();
  void recycle(std::unique_ptr<Job> job);
  void drop_pending();

  base::Origin origin_;
  std::unique_ptr<Flight> in_;
  uint64_t prefetch_;
  std::mutex mutex_;  ///< of stats_
  Stats stats_;
};

}  // namespace gear::deliver

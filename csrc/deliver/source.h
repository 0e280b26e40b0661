#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "deliver/draw.h"

namespace gear::deliver {

/// What a loader counts.
struct Stats {
  uint64_t batches = 0;  ///< delivered
  uint64_t items = 0;
  uint64_t bytes = 0;   ///< copied out of the store
  double wait_s = 0;    ///< time next() waited: for a gather, or with none in flight for a draw
  double gather_s = 0;  ///< time spent copying, by whoever copies
  double gb_per_s = 0;  ///< of the copying, 1e9 bytes a second; 0 before there was any
  plan::Path path = plan::Path::kHost;
  bool selects_on_device = false;
  memory::Tier tier = memory::Tier::kHost;  ///< where all items were found
  /// Over a group, bytes by where they came from, and those that came by message.
  uint64_t local_bytes = 0;
  uint64_t same_node_bytes = 0;
  uint64_t remote_bytes = 0;
  uint64_t message_bytes = 0;
  uint64_t one_sided_bytes = 0;
  uint64_t packed_bytes = 0;  ///< of those one-sided
  uint64_t pack_below = 0;    ///< runs shorter than so many bytes are packed
  /// Of a loader that pulls: items that were read again, and drawn anew.
  uint64_t repeated = 0;
  uint64_t stale = 0;
};

/// A batch on its way through a pipeline. Each source has its own kind of job.
struct Job {
  /// What its draw ended with.
  enum class Outcome : uint8_t { kBatch, kEpochEnd, kFailed };

  Job() = default;
  virtual ~Job() = default;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  plan::Batch batch;
  Outcome outcome = Outcome::kBatch;
  /// Where the sampler was before the draw.
  select::SamplerPosition before;
  /// What failed, delivered in the batch's place: the draw, or what came after it.
  std::exception_ptr error;
  TakenBatch taken;
};

/// Where the batches of a pipeline come from: the host's threads, a GPU, or the ranks of a group.
/// It says how to draw one batch and how to finish one; the queue between the two is the
/// pipeline's.
///
///     draw(k + 2) ── finish(k) ── count(k)       draw(k + 3) ── finish(k + 1) ── ...
///
/// Called by one thread at a time, but for report(). The destructor ends what is in the background;
/// jobs are destroyed after it.
class Source {
 public:
  /// What is the same for all batches.
  struct Facts {
    std::shared_ptr<const plan::BatchLayout> layout;
    plan::Path path = plan::Path::kHost;
    memory::Tier tier = memory::Tier::kHost;
    bool selects_on_device = false;
    store::Shard* counts_in = nullptr;  ///< takes what batches draw of it; null: nobody counts
  };

  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const Facts& facts() const { return facts_; }

  /// An empty job of this source's kind; the pipeline reuses it, its batch and error emptied.
  virtual std::unique_ptr<Job> make_job() = 0;

  /// Draws the next batch and begins to gather it. Waits up to timeout_s until that is allowed and
  /// there is something to draw; false when there was not. `ahead`: other batches are in flight;
  /// without a rate limiter, throws InvalidArgument where there is nothing to draw and none is. A
  /// sampler's refusal is the job's error.
  virtual bool draw(Job& job, bool ahead, std::optional<double> timeout_s) = 0;

  /// Returns when the batch can be delivered, its rows and bytes known, or its error. May be called
  /// again.
  virtual void finish(Job& job) = 0;

  /// This batch is in flight behind the one that is finished and about to be delivered: for what
  /// has its place in that call.
  virtual void comes_next(Job&) {}

  /// The finished batch is about to be delivered: counts what report() adds.
  virtual void count(Job&) {}

  /// Makes of the job a finished batch of these bytes; its items and rows are set.
  virtual void fill(Job& job, std::span<const std::byte> bytes) = 0;

  /// No batch is drawn any more: waits until threads of the source's own have come to their end,
  /// which destroying it does too, deaf to base::check_interrupt.
  virtual void end() {}

  /// Whether an error of this rank alone has left it out of step with the others of its group: they
  /// wait for it, and it cannot go on.
  virtual bool out_of_step() const { return false; }

  /// Nobody will look at the batches in flight; finish() of each follows.
  virtual void drop() {}

  /// What it draws by; only draw() uses it.
  virtual select::Law& law() = 0;
  /// 0 where a law has no epochs. That of the shard which it counts in, unless it says otherwise.
  virtual uint64_t batches_per_epoch() {
    const auto lock = facts_.counts_in->lock();
    return select::batches_per_epoch(law().options(), facts_.counts_in->index(),
                                     facts_.layout->batch_size);
  }

  /// Adds gather_s, and what else of `stats` the pipeline cannot know. From any thread.
  virtual void report(Stats& stats) = 0;

 protected:
  Source() = default;

  Facts facts_;
};

}  // namespace gear::deliver

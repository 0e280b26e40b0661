#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/threads/own_thread.h"
#include "base/threads/thread_pool.h"
#include "deliver/block_pool.h"
#include "deliver/source.h"
#include "deliver/stage.h"
#include "plan/plan.h"
#include "select/sampler.h"

namespace gear::deliver {

/// Batches that the host's threads gather.
///
///     caller's thread   draw: select + plan batch k + prefetch, under the lock ... finish batch k
///     own thread                gather k + 1 | gather k + 2 | ...
///
/// A batch of less than options.hand_over_bytes never enters the queue: draw() gathers it.
///
/// Batches lie in host memory; with a stage, they pass through pinned memory to where it sends
/// them.
///
/// A job goes round three states, each change under mutex_:
///
///     kDone ── draw ──► kQueued ── take ──► kGathering ── gather ──► kDone
///
/// Who takes a job off the queue gathers it: the own thread, or the caller in place of waiting. So
/// each is gathered once, and one that is not done is in the queue, which the own thread empties
/// before it sleeps or ends, or in the hands of a thread that works at it: no wait is for ever.
///
/// Both threads spin before they sleep, since a gather of a small batch takes no longer than to
/// wake a thread. What a spin sees without mutex_ is either final (kDone: only the caller itself
/// takes that back) or looked at again under it (queued_). No wake-up is lost: what a sleeper waits
/// for changes under mutex_, under which it looks before it sleeps, and the notice comes behind the
/// change. A notice that nobody sleeps for is one load.
class HostSource final : public Source {
 public:
  /// Throws InvalidArgument as select::Sampler does.
  HostSource(std::shared_ptr<store::Shard> shard, Request request,
             std::unique_ptr<Stage> stage = nullptr);
  /// Waits for the gathers in flight.
  ~HostSource() override;

  std::unique_ptr<Job> make_job() override;
  bool draw(Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(Job& job) override;
  void fill(Job& job, std::span<const std::byte> bytes) override;
  select::Law& law() override { return sampler_->law(); }
  void report(Stats& stats) override;

 private:
  enum class State : uint8_t { kDone, kQueued, kGathering };

  struct Gather : Job {
    select::Selection selection;
    plan::Plan plan;
    store::Read read;
    std::atomic<State> state{State::kDone};
  };

  void queue(Gather& job);
  void run();
  /// The job at the head of the queue, or null. Under mutex_.
  Gather* take();
  /// Copies what the job's plan says and marks it done; in either thread.
  void gather(Gather& job);

  std::shared_ptr<store::Shard> shard_;
  LoaderOptions options_;
  std::shared_ptr<HostBlockPool> blocks_;
  std::unique_ptr<Stage> stage_;
  std::optional<select::Sampler> sampler_;
  bool looks_;  ///< at priorities, when it draws
  base::ThreadPool& pool_;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Gather*> queue_;
  std::atomic<size_t> queued_{0};  ///< queue_.size(): what the own thread spins on
  bool stop_ = false;
  double gather_s_ = 0;
  base::OwnThread thread_;
};

}  // namespace gear::deliver

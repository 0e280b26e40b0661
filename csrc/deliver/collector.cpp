#include "deliver/collector.h"

#include <chrono>
#include <cstring>

#include "base/errors.h"
#include "base/nvtx.h"
#include "gather/gather_cpu.h"

namespace gear::deliver {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr std::chrono::microseconds kCallerSpin{20};  // about one gather of a small batch
constexpr std::chrono::microseconds kWorkerSpin{60};  // about one cycle of draw, update and draw

// A gather of a small batch takes about as long as waking a thread: looking again for some
// microseconds saves both sides the system call. True when the condition came to hold.
template <class Condition>
bool spin_until(std::chrono::microseconds limit, Condition condition) {
  const Clock::time_point start = Clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) {
        return true;
      }
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (Clock::now() - start < limit);
  return condition();
}

// Gives a read ticket back on every path.
class Reading {
 public:
  Reading(store::Shard& shard, uint64_t ticket) : shard_(shard), ticket_(ticket) {}
  ~Reading() { shard_.end_read(ticket_); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  store::Shard& shard_;
  uint64_t ticket_;
};

}  // namespace

Collector::Collector(std::shared_ptr<store::Shard> shard, CollectorOptions options,
                     std::unique_ptr<Stage> stage)
    : shard_(std::move(shard)),
      options_(std::move(options)),
      stage_(std::move(stage)),
      pool_(base::ThreadPool::shared()) {
  auto lock = shard_->lock();
  plan::check_outputs(options_.outputs, shard_->schema(), options_.batch_size,
                      shard_->index().num_slots());
  layout_ = std::make_shared<plan::BatchLayout>(shard_->schema(), options_.outputs,
                                                options_.batch_size, options_.packed);
  // Of staged batches as many again are on their way to the GPU.
  const size_t most_blocks = (options_.prefetch + 2) * (stage_ ? 2 : 1);
  blocks_ =
      std::make_shared<BlockPool>(layout_->bytes, most_blocks, stage_ ? stage_->device() : -1);
  stats_.path = stage_ ? plan::Path::kStaged : plan::Path::kHost;
  stats_.tier = shard_->options().tier;
  if (select::needs_priorities(options_.sampler)) {
    shard_->settle();
  }
  sampler_ = select::make_sampler(options_.sampler, shard_->index());
  shard_->index().require_lookahead(plan::lookahead(options_.outputs));
  lock.unlock();
  if (stage_) {
    blocks_->make(most_blocks);
  }
  thread_ = std::thread([this] { run(); });
}

Collector::~Collector() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

bool Collector::issue(std::optional<double> timeout_s) {
  auto lock = shard_->lock();
  store::Index& index = shard_->index();
  if (!wait_to_draw(*shard_, lock, options_, timeout_s, !pending_.empty())) {
    return false;
  }
  if (select::needs_priorities(options_.sampler)) {
    shard_->settle();
  }

  std::unique_ptr<Job> job;
  if (idle_.empty()) {
    job = std::make_unique<Job>();
  } else {
    job = std::move(idle_.back());
    idle_.pop_back();
  }
  job->selection.clear();
  job->done = job->epoch_end = job->failed_to_draw = false;
  job->error = nullptr;
  try {
    const base::NvtxRange range("gear.select");
    sampler_->select(index, options_.batch_size, job->selection);
  } catch (const base::Error&) {
    job->failed_to_draw = true;
    job->error = std::current_exception();  // delivered in its place, after what was drawn before
    job->done = true;
    pending_.push_back(std::move(job));
    return true;
  }
  shard_->rate_limiter().sampled(job->selection.size());
  if (job->selection.size() == 0) {
    job->epoch_end = true;
    job->done = true;
    pending_.push_back(std::move(job));
    return true;
  }
  job->batch.layout = layout_;
  job->batch.path = stats_.path;
  job->batch.block = blocks_->acquire();
  {
    const base::NvtxRange range("gear.plan");
    plan::make_plan(index, shard_->layout(), job->selection, job->batch, job->plan);
  }
  job->ticket = shard_->begin_read();  // before pages go that this batch reads
  index.release_spent();
  lock.unlock();
  shard_->notify_progress();

  pending_.push_back(std::move(job));
  bool wake = false;
  {
    const std::lock_guard guard(mutex_);
    queue_.push_back(pending_.back().get());
    queued_.fetch_add(1, std::memory_order_release);
    wake = worker_sleeps_;
  }
  if (wake) {
    work_.notify_one();  // without the lock, which the worker takes first
  }
  return true;
}

Collector::Next Collector::next(std::optional<double> timeout_s, plan::Batch& out) {
  const Clock::time_point start = Clock::now();
  if (pending_.empty() && !issue(timeout_s)) {
    const std::lock_guard guard(mutex_);
    stats_.wait_s += seconds_since(start);
    return Next::kTimedOut;
  }
  // Nothing is drawn beyond the end of an epoch, or an error, until the consumer has reached it.
  while (pending_.size() <= options_.prefetch && !pending_.back()->epoch_end &&
         !pending_.back()->failed_to_draw) {
    if (!issue(0.0)) {
      break;
    }
  }
  std::unique_ptr<Job> job = std::move(pending_.front());
  pending_.pop_front();
  const Clock::time_point waiting = Clock::now();
  finish(*job);
  const bool epoch_end = job->epoch_end;
  const std::exception_ptr error = job->error;
  if (!epoch_end && !error) {
    const std::lock_guard guard(mutex_);
    stats_.wait_s += seconds_since(waiting);
    ++stats_.batches;
    stats_.items += job->batch.items;
    stats_.bytes += job->batch.bytes;
    out = std::move(job->batch);
  }
  job->batch = plan::Batch{};
  idle_.push_back(std::move(job));
  if (error) {
    std::rethrow_exception(error);
  }
  return epoch_end ? Next::kEpochEnd : Next::kBatch;
}

void Collector::gather(Job& job) {
  const base::NvtxRange range("gear.gather");
  const Clock::time_point start = Clock::now();
  std::exception_ptr error;
  {
    const Reading reading(*shard_, job.ticket);
    try {
      gather::gather_cpu(shard_->data(), shard_->layout(), job.plan, job.batch, pool_);
      if (stage_) {
        stage_->send(job.batch);
      }
    } catch (...) {
      error = std::current_exception();
    }
  }
  const std::lock_guard guard(mutex_);
  stats_.gather_s += seconds_since(start);
  job.error = error;
  job.done.store(true, std::memory_order_release);
  if (caller_sleeps_) {
    done_.notify_all();
  }
}

void Collector::finish(Job& job) {
  // In place of waiting: this job, if the gathering thread has not begun it, else the one behind
  // it. But not alone what the whole pool will gather sooner.
  const auto worth_it = [this](const Job& queued) {
    return pool_.size() <= 2 || queued.batch.bytes < gather::kSplitBytes;
  };
  std::unique_lock guard(mutex_);
  if (!job.done.load(std::memory_order_acquire) && !queue_.empty() && worth_it(*queue_.front())) {
    Job& next = *queue_.front();
    queue_.pop_front();
    guard.unlock();
    gather(next);
    guard.lock();
  }
  guard.unlock();
  const base::NvtxRange range("gear.wait");
  if (spin_until(kCallerSpin, [&] { return job.done.load(std::memory_order_acquire); })) {
    return;
  }
  guard.lock();
  caller_sleeps_ = true;
  done_.wait(guard, [&] { return job.done.load(std::memory_order_acquire); });
  caller_sleeps_ = false;
}

void Collector::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    if (queue_.empty() && !stop_) {
      const uint64_t seen = queued_.load(std::memory_order_relaxed);
      guard.unlock();
      spin_until(kWorkerSpin, [&] { return queued_.load(std::memory_order_acquire) != seen; });
      guard.lock();
    }
    worker_sleeps_ = true;
    work_.wait(guard, [&] { return stop_ || !queue_.empty(); });
    worker_sleeps_ = false;
    if (queue_.empty()) {
      return;  // stopping, and nothing holds a ticket any more
    }
    Job& job = *queue_.front();
    queue_.pop_front();
    guard.unlock();
    gather(job);
    guard.lock();
  }
}

void Collector::set_beta(double beta) {
  const auto lock = shard_->lock();
  sampler_->set_beta(beta);
}

uint64_t Collector::batches_per_epoch() {
  const auto lock = shard_->lock();
  return select::batches_per_epoch(options_.sampler, shard_->index(), options_.batch_size);
}

Collector::State Collector::state() {
  State state;
  for (const auto& job : pending_) {
    finish(*job);
    if (job->error) {
      std::rethrow_exception(job->error);
    }
    PendingBatch pending{job->epoch_end, 0, {}, {}};
    if (!job->epoch_end) {
      pending.items = job->batch.items;
      pending.rows = job->batch.rows;
      pending.data = copy_of(job->batch);
    }
    state.pending.push_back(std::move(pending));
  }
  const auto lock = shard_->lock();
  state.position = sampler_->position();
  return state;
}

void Collector::drop_pending() {
  for (auto& job : pending_) {
    finish(*job);
    job->batch = plan::Batch{};
    idle_.push_back(std::move(job));
  }
  pending_.clear();
}

void Collector::restore(const State& state) {
  check_pending(state, *layout_);
  drop_pending();
  for (const PendingBatch& pending : state.pending) {
    auto job = std::make_unique<Job>();
    job->done = true;
    job->epoch_end = pending.epoch_end;
    if (!pending.epoch_end) {
      job->batch.layout = layout_;
      job->batch.path = stats_.path;
      job->batch.block = blocks_->acquire();
      job->batch.items = pending.items;
      job->batch.rows = pending.rows;
      std::memcpy(job->batch.block.get(), pending.data.data(), pending.data.size());
      if (stage_) {
        stage_->send(job->batch);
      }
    }
    pending_.push_back(std::move(job));
  }
  const auto lock = shard_->lock();
  sampler_->restore(state.position);
}

Collector::Stats Collector::stats() {
  Stats stats;
  {
    const std::lock_guard guard(mutex_);
    stats = stats_;
  }
  if (stats.gather_s > 0) {
    stats.gb_per_s = static_cast<double>(stats.bytes) / stats.gather_s / 1e9;
  }
  return stats;
}

plan::Batch collect_ids_by_host(store::Shard& shard, const std::vector<int64_t>& ids,
                                const std::vector<plan::Output>& outputs, bool packed) {
  select::Selection selection;
  plan::Plan plan;
  plan::Batch batch;
  auto lock = shard.lock();
  plan::check_outputs(outputs, shard.schema(), ids.size(), shard.index().num_slots());
  for (int64_t id : ids) {
    selection.add(shard.index().resolve(id), 1.0F);
  }
  batch.layout = std::make_shared<plan::BatchLayout>(shard.schema(), outputs, ids.size(), packed);
  batch.block = std::make_shared<BlockPool>(batch.layout->bytes, 0)->acquire();
  plan::make_plan(shard.index(), shard.layout(), selection, batch, plan);
  // The ids as they were given: an episode's id stays an episode's.
  std::memcpy(batch.at<int64_t>(batch.layout->ids), ids.data(), ids.size() * sizeof(int64_t));
  const Reading reading(shard, shard.begin_read());
  lock.unlock();
  gather::gather_cpu(shard.data(), shard.layout(), plan, batch, base::ThreadPool::shared());
  return batch;
}

}  // namespace gear::deliver

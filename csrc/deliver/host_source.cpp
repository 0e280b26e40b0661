#include "deliver/host_source.h"

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

}  // namespace

HostSource::HostSource(std::shared_ptr<store::Shard> shard, CollectorOptions options,
                       std::unique_ptr<Stage> stage)
    : shard_(std::move(shard)),
      options_(std::move(options)),
      stage_(std::move(stage)),
      pool_(base::ThreadPool::shared()) {
  auto lock = shard_->lock();
  check_outputs(options_.outputs, shard_->schema(), options_.batch_size,
                shard_->index().num_slots());
  facts_.layout = std::make_shared<plan::BatchLayout>(shard_->schema(), options_.outputs,
                                                      options_.batch_size, options_.packed);
  facts_.path = stage_ ? plan::Path::kStaged : plan::Path::kHost;
  facts_.tier = shard_->options().tier;
  // Of staged batches as many again are on their way to the GPU.
  const size_t most_blocks = (options_.prefetch + 2) * (stage_ ? 2 : 1);
  blocks_ = make_host_blocks(facts_.layout->bytes, most_blocks, stage_ ? stage_->device() : -1);
  if (select::needs_priorities(options_.sampler)) {
    shard_->settle();
  }
  shard_->rate_limiter().check_batch(options_.batch_size);
  options_.sampler.lookahead = lookahead(options_.outputs);
  sampler_ = select::make_sampler(options_.sampler, shard_->index());
  lock.unlock();
  if (stage_) {
    blocks_->make(most_blocks);
  }
  thread_ = std::thread([this] { run(); });
}

HostSource::~HostSource() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
}

std::unique_ptr<Job> HostSource::make_job() { return std::make_unique<Gather>(); }

bool HostSource::draw(Job& drawn, bool ahead, std::optional<double> timeout_s) {
  auto& job = static_cast<Gather&>(drawn);
  job.batch.block = bytes_of(blocks_->acquire());  // before the draw, lost if there is no memory
  auto lock = shard_->lock();
  store::Index& index = shard_->index();
  if (!wait_to_draw(*shard_, lock, options_, ahead, timeout_s)) {
    return false;
  }
  if (select::needs_priorities(options_.sampler)) {
    shard_->settle();
  }
  job.selection.clear();
  try {
    const base::NvtxRange range("gear.select");
    sampler_->select(index, options_.batch_size, job.selection);
  } catch (const base::Error&) {
    job.outcome = Job::Outcome::kFailed;
    job.error = std::current_exception();
    return true;
  }
  if (job.selection.size() == 0) {
    job.outcome = Job::Outcome::kEpochEnd;
    return true;
  }
  job.batch.layout = facts_.layout;
  job.batch.path = facts_.path;
  {
    const base::NvtxRange range("gear.plan");
    make_plan(index, shard_->layout(), job.selection, job.batch, job.plan);
  }
  job.ticket = commit_draw(*shard_, lock, job.selection.size());
  queue(job);
  return true;
}

void HostSource::queue(Gather& job) {
  job.done.store(false, std::memory_order_relaxed);
  bool wake = false;
  {
    const std::lock_guard guard(mutex_);
    queue_.push_back(&job);
    queued_.fetch_add(1, std::memory_order_release);
    wake = worker_sleeps_;
  }
  if (wake) {
    work_.notify_one();  // without the lock, which the worker takes first
  }
}

void HostSource::gather(Gather& job) {
  const base::NvtxRange range("gear.gather");
  const Clock::time_point start = Clock::now();
  std::exception_ptr error;
  try {
    gather::gather_cpu(shard_->data(), shard_->layout(), job.plan, job.batch, pool_);
    if (stage_) {
      stage_->send(job.batch);
    }
  } catch (...) {
    error = std::current_exception();
  }
  shard_->end_read(job.ticket);
  const std::lock_guard guard(mutex_);
  gather_s_ += seconds_since(start);
  job.error = error;
  job.done.store(true, std::memory_order_release);
  if (caller_sleeps_) {
    done_.notify_all();
  }
}

void HostSource::finish(Job& wanted, Job*) {
  auto& job = static_cast<Gather&>(wanted);
  // In place of waiting: this job, if the gathering thread has not begun it, else the one behind
  // it. But not alone what the whole pool will gather sooner.
  const auto worth_it = [this](const Gather& queued) {
    return pool_.size() <= 2 || queued.batch.bytes < gather::kSplitBytes;
  };
  std::unique_lock guard(mutex_);
  if (!job.done.load(std::memory_order_acquire) && !queue_.empty() && worth_it(*queue_.front())) {
    Gather& next = *queue_.front();
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

void HostSource::run() {
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
    Gather& job = *queue_.front();
    queue_.pop_front();
    guard.unlock();
    gather(job);
    guard.lock();
  }
}

void HostSource::fill(Job& job, std::span<const std::byte> bytes) {
  job.batch.block = bytes_of(blocks_->acquire());
  std::memcpy(job.batch.block.get(), bytes.data(), bytes.size());
  if (stage_) {
    stage_->send(job.batch);
  }
}

void HostSource::set_beta(double beta) {
  const auto lock = shard_->lock();
  sampler_->set_beta(beta);
}

uint64_t HostSource::batches_per_epoch() {
  const auto lock = shard_->lock();
  return select::batches_per_epoch(options_.sampler, shard_->index(), options_.batch_size);
}

select::SamplerPosition HostSource::position() {
  const auto lock = shard_->lock();
  return sampler_->position();
}

void HostSource::restore(const select::SamplerPosition& position) {
  const auto lock = shard_->lock();
  sampler_->restore(position);
}

void HostSource::report(Stats& stats) {
  const std::lock_guard guard(mutex_);
  stats.gather_s = gather_s_;
}

}  // namespace gear::deliver

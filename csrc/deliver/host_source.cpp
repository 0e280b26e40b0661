#include "deliver/host_source.h"

#include <chrono>
#include <cstring>
#include <thread>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "base/threads/spin.h"
#include "gather/gather_cpu.h"

namespace gear::deliver {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kCallerSpin{20};  // about one gather of a small batch
constexpr std::chrono::microseconds kWorkerSpin{60};  // about one cycle of draw, update and draw

}  // namespace

HostSource::HostSource(std::shared_ptr<store::Shard> shard, Request request,
                       std::unique_ptr<Stage> stage)
    : shard_(std::move(shard)),
      options_(std::move(request.options)),
      stage_(std::move(stage)),
      looks_(select::needs_priorities(options_.sampler)),
      pool_(base::ThreadPool::shared()) {
  auto lock = shard_->lock();
  facts_.layout = std::move(request.layout);
  facts_.path = stage_ ? plan::Path::kStaged : plan::Path::kHost;
  facts_.tier = shard_->options().tier;
  // Of staged batches as many again are on their way to the GPU.
  const size_t most_blocks = (options_.prefetch + 2) * (stage_ ? 2 : 1);
  blocks_ = make_host_blocks(facts_.layout->bytes, most_blocks, stage_ ? stage_->device() : -1);
  facts_.counts_in = shard_.get();
  if (looks_) {
    static_cast<void>(shard_->settle(lock));
  }
  shard_->rate_limiter().check_batch(options_.batch_size);
  sampler_.emplace(options_.sampler, shard_->index());
  lock.unlock();
  if (stage_) {
    blocks_->make(most_blocks);
  }
  thread_ = base::OwnThread("gear-gather", [this] { run(); });
}

HostSource::~HostSource() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  work_.notify_all();
}

std::unique_ptr<Job> HostSource::make_job() { return std::make_unique<Gather>(); }

bool HostSource::draw(Job& drawn, bool ahead, std::optional<double> timeout_s) {
  auto& job = static_cast<Gather&>(drawn);
  job.batch.block = bytes_of(blocks_->acquire());  // before the draw, lost if there is no memory
  auto lock = shard_->lock();
  store::Index& index = shard_->index();
  Draw draw(*shard_, lock);
  if (!draw.wait(options_, sampler_->offered(), looks_, ahead, timeout_s)) {
    return false;
  }
  if (ahead && sampler_->is_weightless(index)) {
    return false;  // there may be something to draw when the batch is asked for
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
  draw.commit(job.selection.size(), job.taken, &job.read);
  if (!stage_ && job.batch.bytes < options_.hand_over_bytes) {
    gather(job);
  } else {
    queue(job);
  }
  return true;
}

void HostSource::queue(Gather& job) {
  {
    const std::lock_guard guard(mutex_);
    job.state.store(State::kQueued, std::memory_order_relaxed);
    queue_.push_back(&job);
    queued_.store(queue_.size(), std::memory_order_release);
  }
  work_.notify_one();
}

HostSource::Gather* HostSource::take() {
  if (queue_.empty()) {
    return nullptr;
  }
  Gather* const job = queue_.front();
  queue_.pop_front();
  queued_.store(queue_.size(), std::memory_order_relaxed);
  job->state.store(State::kGathering, std::memory_order_relaxed);
  return job;
}

void HostSource::gather(Gather& job) {
  const base::NvtxRange range("gear.gather");
  const Clock::time_point start = Clock::now();
  std::exception_ptr error;
  try {
    gather::gather_cpu(shard_->data(), shard_->layout(), job.plan, job.batch, pool_);
  } catch (...) {
    error = std::current_exception();
  }
  // The pages are free before the batch is sent on, which may wait for a training step.
  job.read.end();
  if (stage_ && !error) {
    try {
      stage_->send(job.batch);
    } catch (...) {
      error = std::current_exception();
    }
  }
  {
    const std::lock_guard guard(mutex_);
    gather_s_ += base::seconds_since(start);
    job.error = error;
    job.state.store(State::kDone, std::memory_order_release);
  }
  done_.notify_all();
}

void HostSource::finish(Job& wanted) {
  auto& job = static_cast<Gather&>(wanted);
  const auto done = [&] { return job.state.load(std::memory_order_acquire) == State::kDone; };
  if (done()) {
    return;
  }
  {
    // In place of waiting: this job, if nobody has begun it, else the one behind it. But not alone
    // what the whole pool will gather sooner.
    std::unique_lock guard(mutex_);
    const bool worth_it =
        !queue_.empty() && (pool_.size() <= 2 || queue_.front()->batch.bytes < gather::kSplitBytes);
    Gather* const taken = worth_it ? take() : nullptr;
    guard.unlock();
    if (taken != nullptr) {
      gather(*taken);
    }
  }
  const base::NvtxRange range("gear.wait");
  if (base::spin_until(kCallerSpin, done)) {
    return;
  }
  std::unique_lock guard(mutex_);
  done_.wait(guard, done);
}

void HostSource::run() {
  for (;;) {
    base::spin_until(kWorkerSpin, [this] {
      std::this_thread::yield();  // where cores are few, the caller may be waiting for this one
      return queued_.load(std::memory_order_acquire) > 0;
    });
    std::unique_lock guard(mutex_);
    work_.wait(guard, [this] { return stop_ || !queue_.empty(); });
    Gather* const job = take();
    guard.unlock();
    if (job == nullptr) {
      return;  // stopping, and no read is open any more
    }
    gather(*job);
  }
}

void HostSource::fill(Job& job, std::span<const std::byte> bytes) {
  job.batch.block = bytes_of(blocks_->acquire());
  std::memcpy(job.batch.block.get(), bytes.data(), bytes.size());
  if (stage_) {
    stage_->send(job.batch);
  }
}

void HostSource::report(Stats& stats) {
  const std::lock_guard guard(mutex_);
  stats.gather_s = gather_s_;
}

}  // namespace gear::deliver

#include "group/pull/pull_source.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "base/threads/thread_pool.h"
#include "deliver/make_source.h"

namespace gear::group {
namespace {

void check_pull(const store::Shard& shard, const deliver::LoaderOptions& options) {
  if (options.sampler.policy != select::Policy::kUniform ||
      options.sampler.unit != store::Unit::kStep) {
    throw base::InvalidArgument(
        "[sampler] remote='pull' draws steps with one chance each: give gear.Uniform(), or leave "
        "remote out where all ranks draw together");
  }
  const bool counted = shard.options().max_times_sampled > 0;
  if (counted || shard.options().rate_limiter.active()) {
    throw base::InvalidArgument(base::cat(
        "[sampler] remote='pull' over a buffer with ", counted ? "max_times_sampled" : "rate_limit",
        ": owners do not see what is pulled, and cannot count it; make the buffer without it"));
  }
}

// Of a batch that nobody looks at, unless what gives it up is interrupted.
std::exception_ptr given_up() {
  return std::make_exception_ptr(base::InvalidArgument(
      "[loader] load_state_dict of this loader was interrupted: call it again"));
}

}  // namespace

struct PullSource::Pull : deliver::Job {
  uint64_t number = 0;
  bool ready = true;
  std::vector<uint64_t> bytes;  // by owner
};

PullSource::PullSource(std::shared_ptr<Peers> peers, std::shared_ptr<PublishedShards> shards,
                       deliver::Request request)
    : peers_(std::move(peers)),
      shards_(std::move(shards)),
      options_(std::move(request.options)),
      law_(options_.sampler) {
  store::Shard& shard = peers_->shard();
  check_pull(shard, options_);
  facts_.layout = std::move(request.layout);
  facts_.tier = shard.options().tier;
  facts_.path = plan::Path::kHost;
  if (options_.device >= 0) {
    facts_.path = plan::Path::kStaged;
    stage_ = deliver::make_stage(facts_.layout, options_);
  }
  // Of staged batches as many again are on their way to the GPU.
  const size_t most_blocks = (options_.prefetch + 2) * (stage_ ? 2 : 1);
  blocks_ =
      deliver::make_host_blocks(facts_.layout->bytes, most_blocks, stage_ ? stage_->device() : -1);
  if (stage_) {
    blocks_->make(most_blocks);
  }
  items_ = std::make_unique<PulledItems>(
      *shards_, shard, peers_->rank(), *facts_.layout,
      PulledItems::Options{options_.sampler.seed, options_.sampler.lookahead,
                           peers_->control().timeout_s()});
  bytes_.resize(peers_->size());
  thread_ = base::OwnThread("gear-pull", [this] { run(); });
}

PullSource::~PullSource() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
    give_up_ = true;
  }
  changed_.notify_all();
}

std::unique_ptr<deliver::Job> PullSource::make_job() { return std::make_unique<Pull>(); }

bool PullSource::draw(deliver::Job& drawn, bool ahead, std::optional<double>) {
  auto& job = static_cast<Pull&>(drawn);
  job.batch.block = deliver::bytes_of(blocks_->acquire());
  if (!ahead && !items_->any()) {
    throw base::InvalidArgument(base::cat("[sampler] nothing to sample: none of the ",
                                          shards_->size(), " ranks has published a step"));
  }
  // Where its items fall is for the own thread to say, of what is published then.
  job.number = law_.position().numbers.at(0) / options_.batch_size;
  law_.chance()->next(options_.batch_size, 0, options_.batch_size);
  {
    const std::lock_guard guard(mutex_);
    job.ready = false;
    queue_.push_back(&job);
  }
  changed_.notify_all();
  return true;
}

void PullSource::run() {
  const base::StopsWaits stops(give_up_);
  std::unique_lock guard(mutex_);
  for (;;) {
    changed_.wait(guard, [this] { return stop_ || !queue_.empty(); });
    if (stop_) {
      return;
    }
    Pull& job = *queue_.front();
    queue_.pop_front();
    pulling_ = true;
    guard.unlock();
    const auto start = std::chrono::steady_clock::now();
    std::exception_ptr error;
    try {
      pull(job);
    } catch (const base::Stopped&) {
      error = given_up();
    } catch (...) {
      error = std::current_exception();
    }
    guard.lock();
    gather_s_ += base::seconds_since(start);
    counts_ = items_->counts();
    pulling_ = false;
    give_up_ = false;
    job.error = error;
    job.ready = true;
    changed_.notify_all();
  }
}

void PullSource::pull(Pull& job) {
  const base::NvtxRange range("gear.gather");
  job.batch.layout = facts_.layout;
  job.batch.path = facts_.path;
  items_->fetch(job.number);
  items_->fill(job.batch, base::ThreadPool::shared());
  job.bytes = items_->bytes();
  if (stage_) {
    stage_->send(job.batch);
  }
}

void PullSource::finish(deliver::Job& wanted) {
  const auto& job = static_cast<const Pull&>(wanted);
  std::unique_lock guard(mutex_);
  while (!changed_.wait_for(guard, base::kInterruptEvery, [&job] { return job.ready; })) {
    guard.unlock();
    base::check_interrupt();
    guard.lock();
  }
}

void PullSource::count(deliver::Job& delivered) {
  const auto& job = static_cast<const Pull&>(delivered);
  if (job.batch.bytes == 0) {
    return;  // resumed
  }
  const std::lock_guard guard(mutex_);
  for (size_t owner = 0; owner < bytes_.size(); ++owner) {
    bytes_[owner] += job.bytes[owner];
  }
}

void PullSource::fill(deliver::Job& job, std::span<const std::byte> bytes) {
  job.batch.block = deliver::bytes_of(blocks_->acquire());
  std::memcpy(job.batch.block.get(), bytes.data(), bytes.size());
  if (stage_) {
    stage_->send(job.batch);
  }
}

// An owner that evicts faster than this rank reads, or that does not answer, holds up nobody who
// will not look at what comes.
void PullSource::drop() {
  const std::lock_guard guard(mutex_);
  for (Pull* const job : queue_) {
    job->error = given_up();
    job->ready = true;
  }
  queue_.clear();
  give_up_ = pulling_;
}

void PullSource::report(deliver::Stats& stats) {
  const std::lock_guard guard(mutex_);
  const uint32_t rank = peers_->rank();
  stats.gather_s = gather_s_;
  stats.repeated = counts_.repeated;
  stats.stale = counts_.stale;
  for (uint32_t owner = 0; owner < peers_->size(); ++owner) {
    const uint64_t bytes = bytes_[owner];
    if (owner == rank) {
      stats.local_bytes += bytes;
    } else if (peers_->nodes()[owner] == peers_->nodes()[rank]) {
      stats.same_node_bytes += bytes;
    } else {
      stats.remote_bytes += bytes;
    }
    if (!shards_->by_pointer(owner)) {
      stats.one_sided_bytes += bytes;
    }
  }
}

std::unique_ptr<deliver::Pipeline> make_pull_pipeline(std::shared_ptr<Peers> peers,
                                                      std::shared_ptr<PublishedShards> shards,
                                                      deliver::Request request) {
  const uint64_t prefetch = request.options.prefetch;
  return std::make_unique<deliver::Pipeline>(
      std::make_unique<PullSource>(std::move(peers), std::move(shards), std::move(request)),
      prefetch);
}

}  // namespace gear::group

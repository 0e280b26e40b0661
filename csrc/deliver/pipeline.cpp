#include "deliver/pipeline.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/threads/spin.h"

namespace gear::deliver {
namespace {

using Clock = std::chrono::steady_clock;

// The bytes of a batch's block, wherever it lies; waits until it is filled.
std::vector<std::byte> copy_of(const plan::Batch& batch) {
  std::vector<std::byte> bytes(batch.layout->bytes);
  if (batch.delivery) {
    batch.delivery->read(bytes);
  } else {
    std::memcpy(bytes.data(), batch.block.get(), bytes.size());
  }
  return bytes;
}

bool fits(const Pipeline::PendingBatch& pending, const plan::BatchLayout& layout) {
  if (pending.epoch_end) {
    return true;
  }
  if (pending.data.size() != layout.bytes || pending.items > layout.batch_size ||
      pending.rows.size() != layout.windows.size()) {
    return false;
  }
  for (size_t w = 0; w < pending.rows.size(); ++w) {
    if (pending.rows[w] > pending.items * layout.windows[w].window.length()) {
      return false;
    }
  }
  return true;
}

}  // namespace

Pipeline::Pipeline(std::unique_ptr<Source> source, uint64_t prefetch)
    : in_(std::make_unique<Flight>()), prefetch_(prefetch) {
  stats_.path = source->facts().path;
  stats_.tier = source->facts().tier;
  stats_.selects_on_device = source->facts().selects_on_device;
  in_->source = std::move(source);
}

Pipeline::~Pipeline() {
  if (origin_.forked()) {
    // The threads stayed in the parent, but are still counted as waiting: destroying what they wait
    // on would wait for them.
    static_cast<void>(in_.release());
    return;
  }
  for (const auto& job : in_->pending) {
    job->taken.give_back();
  }
}

void Pipeline::end() {
  if (!origin_.forked()) {
    in_->source->end();
  }
}

Source& Pipeline::source() const {
  if (origin_.forked()) {
    throw base::InvalidArgument(
        base::cat("[loader] this loader ", origin_.text(),
                  ", while its threads stayed there: make the loader in the process that uses it"));
  }
  return *in_->source;
}

std::unique_ptr<Job> Pipeline::idle_job() {
  if (in_->idle.empty()) {
    return in_->source->make_job();
  }
  std::unique_ptr<Job> job = std::move(in_->idle.back());
  in_->idle.pop_back();
  return job;
}

void Pipeline::recycle(std::unique_ptr<Job> job) {
  job->taken.give_back();
  job->batch = plan::Batch{};
  job->outcome = Job::Outcome::kBatch;
  job->error = nullptr;
  in_->idle.push_back(std::move(job));
}

bool Pipeline::draw(bool ahead, std::optional<double> timeout_s) {
  std::unique_ptr<Job> job = idle_job();
  job->before = in_->source->law().position();
  if (!in_->source->draw(*job, ahead, timeout_s)) {
    recycle(std::move(job));
    return false;
  }
  in_->pending.push_back(std::move(job));
  return true;
}

Pipeline::Next Pipeline::next(std::optional<double> timeout_s, plan::Batch& out) {
  Source& source = this->source();
  std::deque<std::unique_ptr<Job>>& pending = in_->pending;
  if (pending.empty()) {
    const Clock::time_point start = Clock::now();
    const bool drawn = draw(false, timeout_s);
    {
      const std::lock_guard guard(mutex_);
      stats_.wait_s += base::seconds_since(start);
    }
    if (!drawn) {
      return Next::kTimedOut;
    }
  }
  // Nothing is drawn beyond the end of an epoch, or an error, until the consumer has reached it.
  while (pending.size() <= prefetch_ && pending.back()->outcome == Job::Outcome::kBatch) {
    if (!draw(true, 0.0)) {
      break;
    }
  }
  const Clock::time_point start = Clock::now();
  source.finish(*pending.front());
  if (pending.size() > 1) {
    source.comes_next(*pending[1]);
  }
  std::unique_ptr<Job> job = std::move(pending.front());
  pending.pop_front();
  const Job::Outcome outcome = job->outcome;
  const std::exception_ptr error = job->error;
  if (outcome == Job::Outcome::kBatch && !error) {
    source.count(*job);
    job->taken.deliver();
    {
      const std::lock_guard guard(mutex_);
      stats_.wait_s += base::seconds_since(start);
      ++stats_.batches;
      stats_.items += job->batch.items;
      stats_.bytes += job->batch.bytes;
    }
    out = std::move(job->batch);
  }
  recycle(std::move(job));
  if (error) {
    std::rethrow_exception(error);
  }
  return outcome == Job::Outcome::kEpochEnd ? Next::kEpochEnd : Next::kBatch;
}

void Pipeline::set_beta(double beta) { source().law().set_beta(beta); }

uint64_t Pipeline::batches_per_epoch() { return source().batches_per_epoch(); }

Pipeline::State Pipeline::state() {
  Source& source = this->source();
  State state;
  for (const auto& job : in_->pending) {
    source.finish(*job);
    if (job->error) {
      std::rethrow_exception(job->error);
    }
    PendingBatch pending;
    pending.before = job->before;
    pending.epoch_end = job->outcome == Job::Outcome::kEpochEnd;
    if (!pending.epoch_end) {
      pending.items = job->batch.items;
      pending.rows = job->batch.rows;
      pending.data = copy_of(job->batch);
      pending.draws = job->taken.draws().draws;
      for (const store::Use& use : job->taken.draws().uses) {
        pending.uses.push_back(use.name);
      }
    }
    state.pending.push_back(std::move(pending));
  }
  state.position = source.law().position();
  return state;
}

void Pipeline::drop_pending() {
  in_->source->drop();
  while (!in_->pending.empty()) {
    in_->source->finish(*in_->pending.front());
    recycle(std::move(in_->pending.front()));
    in_->pending.pop_front();
  }
}

void Pipeline::check(const State& state) const {
  const plan::BatchLayout& layout = *source().facts().layout;
  for (const PendingBatch& pending : state.pending) {
    if (fits(pending, layout)) {
      continue;
    }
    throw base::InvalidArgument(base::cat(
        "[loader] the loader's state holds a batch of ", pending.data.size(), " bytes, ",
        pending.items, " items and ", pending.rows.size(), " windows, this loader's have ",
        layout.bytes, ", at most ", layout.batch_size, " and ", layout.windows.size(),
        ": make the loader with the options it was saved with"));
  }
}

void Pipeline::restore(const State& state) {
  Source& source = this->source();
  check(state);
  std::deque<std::unique_ptr<Job>> jobs;
  for (const PendingBatch& pending : state.pending) {
    std::unique_ptr<Job> job = idle_job();
    job->before = pending.before;
    if (pending.epoch_end) {
      job->outcome = Job::Outcome::kEpochEnd;
    } else {
      job->batch.layout = source.facts().layout;
      job->batch.path = source.facts().path;
      job->batch.items = pending.items;
      job->batch.rows = pending.rows;
      source.fill(*job, pending.data);
    }
    jobs.push_back(std::move(job));
  }
  source.law().restore(state.position);
  // Nothing is refused any more.
  drop_pending();
  in_->pending = std::move(jobs);
  store::Shard* const shard = source.facts().counts_in;
  for (size_t i = 0; i < state.pending.size() && shard != nullptr; ++i) {
    const PendingBatch& pending = state.pending[i];
    if (!pending.epoch_end) {
      in_->pending[i]->taken = {*shard,
                                shard->take_again(pending.uses, pending.draws, pending.items,
                                                  source.law().options().unit)};
    }
  }
}

Stats Pipeline::stats() {
  Source& source = this->source();
  Stats stats;
  {
    const std::lock_guard guard(mutex_);
    stats = stats_;
  }
  source.report(stats);
  if (stats.gather_s > 0) {
    stats.gb_per_s = static_cast<double>(stats.bytes) / stats.gather_s / 1e9;
  }
  return stats;
}

}  // namespace gear::deliver

#include "group/group_source.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/nvtx.h"
#include "deliver/device_source.h"
#include "select/importance.h"
#include "transport/typed.h"

namespace gear::group {
namespace {
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct GroupCollector::Job {
  uint64_t number = 0;
  DrawnBatch drawn;
  plan::Batch batch;
  std::unique_ptr<BatchAssembly> assembly;
  std::vector<std::vector<std::byte>> received;  // parcels, by owner
  std::vector<plan::PackedRows> from;            // by owner: its rows, to be received
  std::vector<uint32_t> readers;                 // ranks that read this one's pages
  bool failed_to_draw = false;
  bool prepared = false;  // nothing is left to do but launch()
  bool launched = false;
  std::exception_ptr error;
};

GroupCollector::GroupCollector(std::shared_ptr<Peers> peers, deliver::CollectorOptions options,
                               GroupOptions group)
    : peers_(std::move(peers)),
      shard_(peers_->shard()),
      options_(std::move(options)),
      group_(group),
      control_(peers_->control().duplicate()),
      data_(peers_->control().duplicate()),
      layout_([&] {
        plan::check_outputs(options_.outputs, shard_.schema(), options_.batch_size,
                            shard_.index().num_slots());
        return std::make_shared<plan::BatchLayout>(shard_.schema(), options_.outputs,
                                                   options_.batch_size, options_.packed);
      }()) {
  check_same_loader(options_, group_.locality, group_.nccl, group_.timeout_s, *control_);
  const uint64_t loader = peers_->next_loader();
  mover_ = make_mover();
  board_ = std::make_shared<ReadBoard>(*peers_, loader, *control_);
  draw_ = std::make_unique<GlobalDraw>(*peers_, options_, group_.locality, layout_,
                                       access_.by_pointer, *control_);
  stats_.tier = shard_.options().tier;
  thread_ = std::thread([this] { run(); });
}

GroupCollector::~GroupCollector() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  board_->passed(UINT64_MAX);
  // A GPU's memory must be there for as long as another one reads it; that of the host is.
  if (shard_.options().tier != memory::Tier::kDevice) {
    return;
  }
  const Clock::time_point start = Clock::now();
  for (const auto& end : ends_) {
    while (!end->done() && seconds_since(start) < data_->timeout_s()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

std::unique_ptr<GroupMover> GroupCollector::make_mover() {
  const memory::Tier tier = shard_.options().tier;
  deliver::check_path(options_, tier);
  if (tier == memory::Tier::kDevice && options_.device < 0) {
    throw base::InvalidArgument(
        "[collect] device 'cpu' from tier 'device' over several ranks: give device='cuda'");
  }
  // One for all: path='auto' goes by what each rank has measured.
  uint8_t by_kernels = deliver::uses_kernels(shard_, options_, *layout_) ? 1 : 0;
  for (const uint8_t one : transport::allgather(*control_, by_kernels)) {
    by_kernels &= one;
  }
  by_kernels_ = by_kernels != 0;
  access_ = agree_on_access(*peers_, by_kernels_ ? options_.device : -1, *control_);
  if (!by_kernels_) {
    stats_.path = options_.device >= 0 ? plan::Path::kStaged : plan::Path::kHost;
    return make_host_mover(layout_, shard_.layout(), access_.pages, peers_->rank(),
                           options_.prefetch, *data_,
                           options_.device >= 0 ? deliver::make_stage(layout_, options_) : nullptr);
  }
  stats_.path = tier == memory::Tier::kDevice ? plan::Path::kDevice : plan::Path::kZeroCopy;
  const bool nccl = group_.nccl && access_.messages;
  return make_device_mover(layout_, shard_.layout(), access_.pages, peers_->rank(),
                           options_.prefetch, options_.device, *data_,
                           nccl ? transport::make_nccl(*control_, options_.device) : nullptr);
}

std::unique_ptr<GroupCollector::Job> GroupCollector::idle_job() {
  std::unique_ptr<Job> job;
  if (idle_.empty()) {
    job = std::make_unique<Job>();
    job->assembly = std::make_unique<BatchAssembly>(*layout_, shard_.layout(), access_.mapped);
    job->received.resize(peers_->size());
    job->from.resize(peers_->size());
  } else {
    job = std::move(idle_.back());
    idle_.pop_back();
  }
  job->drawn.epoch_end = job->failed_to_draw = job->prepared = job->launched = false;
  job->error = nullptr;
  job->readers.clear();
  return job;
}

GlobalDraw::Round GroupCollector::issue(GlobalDraw::Terms terms) {
  std::unique_ptr<Job> job = idle_job();
  try {
    const GlobalDraw::Round round = draw_->draw(terms, job->drawn);
    if (round != GlobalDraw::Round::kDrawn) {
      idle_.push_back(std::move(job));
      return round;
    }
    job->prepared = job->drawn.epoch_end;
  } catch (const base::InvalidArgument&) {
    job->failed_to_draw = job->prepared = true;
    job->error = std::current_exception();  // delivered in its place, after what was drawn before
  }
  pending_.push_back(std::move(job));
  if (!pending_.back()->prepared) {
    pending_.back()->number = issued_++;
    {
      const std::lock_guard guard(mutex_);
      queue_.push_back(pending_.back().get());
    }
    changed_.notify_all();
  }
  return GlobalDraw::Round::kDrawn;
}

void GroupCollector::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    // A GPU gathers a batch while the next one is prepared.
    while (!reading_.empty() && (queue_.empty() || reading_.size() > 1)) {
      const Reading read = std::move(reading_.front());
      reading_.pop_front();
      guard.unlock();
      end_reading(read);
      guard.lock();
    }
    changed_.wait(guard, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      return;
    }
    Job& job = *queue_.front();
    queue_.pop_front();
    guard.unlock();
    if (!failure_) {
      try {
        prepare(job);
      } catch (...) {
        // For good: this rank is out of step with the others.
        failure_ = std::current_exception();
      }
    }
    if (job.drawn.ticket != 0) {  // others may have been told of the pages all the same
      reading_.push_back({job.number, std::exchange(job.drawn.ticket, 0), job.readers});
    }
    guard.lock();
    job.error = failure_;
    job.prepared = true;
    changed_.notify_all();
  }
}

// What a lost GPU or rank no longer reads is given back all the same: writers wait for it.
void GroupCollector::end_reading(const Reading& read) {
  try {
    mover_->wait_read(read.number);
  } catch (const base::Error&) {  // the batch's consumer is told
  }
  board_->passed(failure_ ? UINT64_MAX : read.number + 1);
  std::erase_if(ends_, [](const auto& end) { return end->done(); });
  ends_.push_back(std::make_shared<ReadersEnd>(board_, read.number, read.readers));
  shard_.end_read_when(read.ticket, ends_.back());
}

void GroupCollector::prepare(Job& job) {
  const uint32_t ranks = peers_->size();
  const uint32_t rank = peers_->rank();
  for (uint32_t c = 0; c < ranks; ++c) {
    if (c != rank && access_.reads(c, rank) && !job.drawn.parcels[c].bytes.empty()) {
      job.readers.push_back(c);
    }
  }
  exchange_parcels(*data_, job.drawn, job.received);
  mover_->begin(job.batch);
  job.batch.layout = layout_;
  job.batch.path = stats_.path;
  job.assembly->begin(job.batch, job.drawn.items);
  for (uint32_t o = 0; o < ranks; ++o) {
    job.assembly->add(o, job.received[o]);
  }
  job.assembly->finish();
  select::set_importance(job.drawn.beta, job.drawn.least,
                         {job.batch.at<float>(layout_->probabilities), job.drawn.items},
                         {job.batch.at<float>(layout_->weights), job.drawn.items});
  for (uint32_t c = 0; c < ranks; ++c) {
    const Parcel& parcel = job.drawn.parcels[c];
    if (c == rank || access_.reads(c, rank) || parcel.bytes.empty()) {
      continue;
    }
    mover_->pack(job.number, c, parcel.plan, parcel.rows);
  }
  for (uint32_t o = 0; o < ranks; ++o) {
    job.from[o] = job.assembly->packed(o);
  }
  const Clock::time_point start = Clock::now();
  mover_->gather(job.number, *job.assembly, job.batch, access_.messages);
  if (!by_kernels_) {
    const std::lock_guard guard(mutex_);
    stats_.gather_s += seconds_since(start);
  }
  reading_.push_back({job.number, std::exchange(job.drawn.ticket, 0), job.readers});
  if (!mover_->on_stream()) {
    launch(job);
  }
}

void GroupCollector::launch(Job& job) {
  if (access_.messages) {
    mover_->exchange(job.number, job.from);
    mover_->unpack(job.number, *job.assembly, job.from, job.batch);
  }
  job.launched = true;
}

void GroupCollector::finish(Job& job) {
  {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return job.prepared; });
  }
  if (!job.error && !job.drawn.epoch_end && !job.launched) {
    launch(job);
  }
}

bool GroupCollector::allowed(double within_s) {
  auto lock = shard_.lock();
  return shard_.wait_sample_elsewhere(lock, options_.batch_size, within_s);
}

// Issues a batch; false when some rank has waited for its timeout_s. Attempts are collective: no
// rank waits where the others cannot hear of it for longer than a moment.
bool GroupCollector::wait_to_issue(std::optional<double> timeout_s) {
  constexpr double kMoment = 1e-3;
  const Clock::time_point start = Clock::now();
  for (;;) {
    const bool is_allowed = allowed(kMoment);
    const bool out_of_time = timeout_s && seconds_since(start) >= *timeout_s;
    switch (issue({is_allowed, out_of_time})) {
      case GlobalDraw::Round::kDrawn:
        return true;
      case GlobalDraw::Round::kOutOfTime:
        return false;
      case GlobalDraw::Round::kNothing:
        refuse_to_draw();
      case GlobalDraw::Round::kNotAllowed:
        std::this_thread::sleep_for(std::chrono::duration<double>(kMoment));
        break;
    }
  }
}

GroupCollector::Next GroupCollector::next(std::optional<double> timeout_s, plan::Batch& out) {
  const Clock::time_point start = Clock::now();
  const auto note_wait = [&] {
    const std::lock_guard guard(mutex_);
    stats_.wait_s += seconds_since(start);
  };
  if (pending_.empty()) {
    const bool issued = wait_to_issue(timeout_s);
    note_wait();
    if (!issued) {
      return Next::kTimedOut;
    }
  }
  // Nothing is drawn beyond the end of an epoch, or an error, until the consumer has reached it.
  while (pending_.size() <= options_.prefetch && !pending_.back()->drawn.epoch_end &&
         !pending_.back()->failed_to_draw) {
    if (issue({allowed(0.0), true}) != GlobalDraw::Round::kDrawn) {
      break;
    }
  }
  const Clock::time_point waiting = Clock::now();
  finish(*pending_.front());
  if (mover_->on_stream() && pending_.size() > 1) {
    finish(*pending_[1]);
  }
  std::unique_ptr<Job> job = std::move(pending_.front());
  pending_.pop_front();
  const bool epoch_end = job->drawn.epoch_end;
  const std::exception_ptr error = job->error;
  if (!epoch_end && !error) {
    const std::lock_guard guard(mutex_);
    stats_.wait_s += seconds_since(waiting);
    count(*job);
    out = std::move(job->batch);
  }
  job->batch = plan::Batch{};
  idle_.push_back(std::move(job));
  if (error) {
    std::rethrow_exception(error);
  }
  return epoch_end ? Next::kEpochEnd : Next::kBatch;
}

void GroupCollector::refuse_to_draw() const {
  throw base::InvalidArgument(base::cat(
      "[select] nothing to sample: none of the ", peers_->size(), " ranks offers an anchor; ",
      options_.sampler.unit == store::Unit::kStep
          ? "a step of an open episode is offered once its windows are complete: append more or "
            "end the episode"
          : "an episode is offered once it has ended: end one"));
}

void GroupCollector::count(const Job& job) {
  ++stats_.batches;
  stats_.items += job.batch.items;
  stats_.bytes += job.batch.bytes;
  if (job.batch.bytes == 0) {
    return;  // resumed, or empty
  }
  const uint32_t rank = peers_->rank();
  for (uint32_t o = 0; o < peers_->size(); ++o) {
    const uint64_t bytes = job.assembly->bytes(o);
    if (o == rank) {
      stats_.local_bytes += bytes;
    } else if (peers_->nodes()[o] == peers_->nodes()[rank]) {
      stats_.same_node_bytes += bytes;
    } else {
      stats_.remote_bytes += bytes;
    }
    if (!access_.reads(rank, o)) {
      stats_.message_bytes += bytes;
    }
  }
}

void GroupCollector::set_beta(double beta) { draw_->set_beta(beta); }

uint64_t GroupCollector::batches_per_epoch() { return draw_->batches_per_epoch(); }

deliver::BatchSource::State GroupCollector::state() {
  State state;
  for (const auto& job : pending_) {
    finish(*job);
    if (job->error) {
      std::rethrow_exception(job->error);
    }
    PendingBatch pending{job->drawn.epoch_end, 0, {}, {}};
    if (!job->drawn.epoch_end) {
      pending.items = job->batch.items;
      pending.rows = job->batch.rows;
      pending.data = deliver::copy_of(job->batch);
    }
    state.pending.push_back(std::move(pending));
  }
  state.position = draw_->position();
  return state;
}

void GroupCollector::drop_pending() {
  while (!pending_.empty()) {
    finish(*pending_.front());
    pending_.front()->batch = plan::Batch{};
    idle_.push_back(std::move(pending_.front()));
    pending_.pop_front();
  }
}

void GroupCollector::restore(const State& state) {
  deliver::check_pending(state, *layout_);
  drop_pending();
  for (const PendingBatch& pending : state.pending) {
    std::unique_ptr<Job> job = idle_job();
    job->prepared = job->launched = true;
    job->drawn.epoch_end = pending.epoch_end;
    if (!pending.epoch_end) {
      job->batch.layout = layout_;
      job->batch.path = stats_.path;
      job->batch.items = pending.items;
      job->batch.rows = pending.rows;
      mover_->fill(job->batch, pending.data);
    }
    pending_.push_back(std::move(job));
  }
  draw_->restore(state.position);
}

deliver::BatchSource::Stats GroupCollector::stats() {
  const std::lock_guard guard(mutex_);
  Stats stats = stats_;
  if (stats.gather_s > 0) {
    stats.gb_per_s = static_cast<double>(stats.bytes) / stats.gather_s / 1e9;
  }
  return stats;
}

}  // namespace gear::group

#include "group/group_source.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "deliver/make_source.h"
#include "group/parcels/parcel_format.h"
#include "select/importance.h"
#include "transport/on_all.h"

namespace gear::group {

using Clock = std::chrono::steady_clock;

namespace {

// And no interrupt of the thread that waits.
bool is_error(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const base::Error&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::exception_ptr interrupted() {
  return std::make_exception_ptr(base::TransportError(
      "[loader] an interrupt has ended a batch before: this loader is of no use any more"));
}

// Ranks that read pages one-sided, of a batch in which this rank failed: whether they have read is
// not known any more.
class UnheardReaders final : public store::ReadEnd {
 public:
  explicit UnheardReaders(std::shared_ptr<const std::atomic<bool>> closed)
      : closed_(std::move(closed)) {}
  bool done() const noexcept override { return closed_->load(std::memory_order_acquire); }
  void waited(std::chrono::duration<double>) const override {
    throw base::TransportError(
        "[writer] ranks may still read a page of a batch in which their group has failed: close "
        "the loader first, and start the run again");
  }

 private:
  std::shared_ptr<const std::atomic<bool>> closed_;
};

}  // namespace

struct GroupSource::Share : deliver::Job {
  enum class State : uint8_t {
    kDrawn,      // the own thread has it
    kGathering,  // all but the exchange of rows has been begun
    kReady,      // to be delivered, whatever it is
  };

  uint64_t number = 0;
  DrawnBatch drawn;
  std::unique_ptr<BatchAssembly> assembly;
  std::vector<uint32_t> readers;  // ranks that read this one's pages
  bool far_readers = false;       // others read them one-sided, and have not said that they have
  State state = State::kReady;
};

GroupSource::GroupSource(LoaderParts parts)
    : peers_(std::move(parts.peers)),
      shard_(peers_->shard()),
      options_(std::move(parts.options)),
      group_(parts.group),
      control_(std::move(parts.control)),
      data_(peers_->control().duplicate()),
      by_kernels_(parts.by_kernels),
      access_(std::move(parts.access)),
      pack_below_(parts.pack_below) {
  facts_.layout = std::move(parts.layout);
  facts_.tier = shard_.options().tier;
  facts_.counts_in = &shard_;
  mover_ = make_mover();
  board_ = std::make_shared<ReadBoard>(*peers_, parts.number, *control_);
  transport::on_all(*control_, [&] {
    draw_ = std::make_unique<GlobalDraw>(*peers_, options_, group_.locality, facts_.layout,
                                         access_.told(), *control_);
  });
  // As on one rank: a small batch is filled by the time another thread would wake up. Where rows
  // travel, that thread hides the way.
  by_caller_ = !by_kernels_ && options_.device < 0 &&
               facts_.layout->bytes < options_.hand_over_bytes &&
               (options_.prefetch == 0 || !access_.moves_rows());
  if (by_caller_) {
    ended_ = true;
  } else {
    thread_ = base::OwnThread("gear-group", [this] { run(); });
  }
}

GroupSource::~GroupSource() {
  stop();
  thread_.join();
  board_->passed(UINT64_MAX);
  closed_->store(true, std::memory_order_release);
  // A GPU's memory must be there for as long as another one reads it; that of the host is.
  if (shard_.options().tier != memory::Tier::kDevice) {
    return;
  }
  const Clock::time_point start = Clock::now();
  for (const auto& end : ends_) {
    while (!end->done() && base::seconds_since(start) < data_->timeout_s()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void GroupSource::stop() {
  {
    const std::lock_guard guard(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
}

void GroupSource::end() {
  stop();
  std::unique_lock guard(mutex_);
  while (!changed_.wait_for(guard, base::kInterruptEvery, [this] { return ended_; })) {
    guard.unlock();
    base::check_interrupt();
    guard.lock();
  }
}

std::unique_ptr<GroupMover> GroupSource::make_mover() {
  MoverParts parts{facts_.layout,  shard_.layout(),   access_.pages,
                   peers_->rank(), options_.prefetch, *data_};
  if (access_.others == Way::kRead) {
    parts.reader = peers_->remote()->connect(*control_, access_.far());
  }
  parts.in_arena = access_.others == Way::kPacked;
  if (!by_kernels_) {
    facts_.path = options_.device >= 0 ? plan::Path::kStaged : plan::Path::kHost;
    return make_host_mover(std::move(parts), options_.device >= 0
                                                 ? deliver::make_stage(facts_.layout, options_)
                                                 : nullptr);
  }
  facts_.path = facts_.tier == memory::Tier::kDevice ? plan::Path::kDevice : plan::Path::kZeroCopy;
  const bool nccl = group_.nccl && access_.moves_rows();
  return make_device_mover(std::move(parts), options_.device,
                           nccl ? transport::make_nccl(*control_, options_.device) : nullptr);
}

std::unique_ptr<deliver::Job> GroupSource::make_job() {
  std::vector<uint64_t> mapped;
  mapped.reserve(access_.pages.size());
  for (const PeerPages& one : access_.pages) {
    mapped.push_back(one.num_pages);
  }
  auto job = std::make_unique<Share>();
  job->assembly = std::make_unique<BatchAssembly>(*facts_.layout, shard_.layout(), mapped);
  return job;
}

bool GroupSource::draw(deliver::Job& drawn, bool ahead, std::optional<double> timeout_s) {
  auto& job = static_cast<Share&>(drawn);
  std::exception_ptr error;
  try {
    mover_->acquire(job.batch);
  } catch (...) {  // the others are told, by a draw that then fails on all
    error = std::current_exception();
  }
  return draw_by_attempts(*peers_, options_, ahead, timeout_s, error,
                          [&](const GlobalDraw::Terms& terms) { return attempt(job, terms); });
}

GlobalDraw::Round GroupSource::attempt(Share& job, const GlobalDraw::Terms& terms) {
  job.readers.clear();
  job.far_readers = false;
  GlobalDraw::Round round{};
  try {
    Agreement::Terms with_room = terms;
    with_room.room = mover_->wanted_room();
    round = draw_->draw(with_room, job.drawn, job.taken);
  } catch (const base::InvalidArgument&) {
    job.outcome = deliver::Job::Outcome::kFailed;
    job.error = std::current_exception();
    return GlobalDraw::Round::kDrawn;
  }
  if (round == GlobalDraw::Round::kEpochEnd) {
    job.outcome = deliver::Job::Outcome::kEpochEnd;
  }
  if (round != GlobalDraw::Round::kDrawn) {
    return round;
  }
  job.number = drawn_++;
  job.state = Share::State::kDrawn;
  if (by_caller_) {
    const store::Shard::Gathers gathers(shard_);
    carry_out(job);
    end_readings(0);
    if (const std::exception_ptr error = std::exchange(job.error, nullptr)) {
      // Now, whatever batch is delivered next: the others are in this very call.
      job.taken.give_back();
      std::rethrow_exception(error);
    }
    return GlobalDraw::Round::kDrawn;
  }
  {
    const std::lock_guard guard(mutex_);
    queue_.push_back(&job);
  }
  changed_.notify_all();
  return GlobalDraw::Round::kDrawn;
}

void GroupSource::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    // A GPU gathers a batch while the next one is prepared.
    while (!reading_.empty() && (queue_.empty() || reading_.size() > 1)) {
      guard.unlock();
      end_readings(reading_.size() - 1);
      guard.lock();
    }
    changed_.wait(guard, [&] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      ended_ = true;
      changed_.notify_all();
      return;
    }
    Share& job = *queue_.front();
    queue_.pop_front();
    guard.unlock();
    carry_out(job);
    guard.lock();
  }
}

void GroupSource::carry_out(Share& job) {
  std::exception_ptr error;
  if (!failure_) {
    try {
      prepare(job);
    } catch (const base::TransportError&) {
      error = std::current_exception();
      lost_ = !group_has_failed();
    } catch (...) {
      // For good: this rank is out of step with the others.
      error = std::current_exception();
      lost_ = true;
    }
    if (error) {
      failure_ = is_error(error) ? error : interrupted();
    }
  }
  if (job.drawn.read.open()) {  // others may have been told of the pages all the same
    reading_.push_back({job.number, std::move(job.drawn.read), job.readers, job.far_readers});
  }
  const bool to_exchange = !failure_ && access_.moves_rows() && mover_->on_stream();
  const std::lock_guard guard(mutex_);
  job.error = error ? error : failure_;
  job.state = to_exchange ? Share::State::kGathering : Share::State::kReady;
  changed_.notify_all();
}

// By the transport, which has told the others then.
bool GroupSource::group_has_failed() {
  try {
    data_->look();
    return false;
  } catch (const base::TransportError&) {
    return true;
  }
}

// Of the batches so far, but for the last so many.
void GroupSource::end_readings(size_t but) {
  while (reading_.size() > but) {
    Reading reading = std::move(reading_.front());
    reading_.pop_front();
    end_reading(reading);
  }
}

// What a lost GPU or rank no longer reads is given back all the same: writers wait for it.
void GroupSource::end_reading(Reading& reading) {
  try {
    mover_->wait_read(reading.number);
  } catch (const base::Error&) {  // the batch's consumer is told
  }
  board_->passed(failure_ ? UINT64_MAX : reading.number + 1);
  std::erase_if(ends_, [](const auto& end) { return end->done(); });
  if (reading.far_readers) {
    reading.read.end_when(std::make_shared<UnheardReaders>(closed_));
    return;
  }
  ends_.push_back(std::make_shared<ReadersEnd>(board_, reading.number, reading.readers));
  reading.read.end_when(ends_.back());
}

void GroupSource::prepare(Share& job) {
  const uint32_t ranks = peers_->size();
  const uint32_t rank = peers_->rank();
  for (uint32_t c = 0; c < ranks; ++c) {
    if (c != rank && access_.to(c) == Way::kPointer && job.drawn.parcels[c].items > 0) {
      job.readers.push_back(c);
    }
    job.far_readers |= access_.to(c) == Way::kRead && job.drawn.parcels[c].items > 0;
  }
  shard_.pages().wait();  // peers read them without this GPU's stream
  mover_->begin(job.batch);
  mover_->make_room(job.drawn.room);
  for (uint32_t c = 0; c < ranks; ++c) {
    Parcel& parcel = job.drawn.parcels[c];
    if (c != rank && access_.to(c) != Way::kPointer && parcel.items > 0) {
      mover_->pack(c, parcel);
    }
  }
  const auto received = exchange_parcels(*data_, job.drawn);
  job.batch.layout = facts_.layout;
  job.batch.path = facts_.path;
  job.assembly->begin(job.batch, job.drawn.items);
  for (uint32_t o = 0; o < ranks; ++o) {
    if (!received[o].empty()) {
      job.assembly->add(o, received[o]);
    }
  }
  job.assembly->finish();
  select::set_importance(job.drawn.beta, job.drawn.least,
                         {job.batch.at<float>(facts_.layout->probabilities), job.drawn.items},
                         {job.batch.at<float>(facts_.layout->weights), job.drawn.items});
  const Clock::time_point start = Clock::now();
  mover_->gather(job.number, *job.assembly, job.batch, access_.moves_rows());
  if (!by_kernels_) {
    const std::lock_guard guard(mutex_);
    counted_.gather_s += base::seconds_since(start);
  }
  if (access_.others != Way::kRead) {
    reading_.push_back({job.number, std::move(job.drawn.read), job.readers, false});
  }
  if (access_.moves_rows() && !mover_->on_stream()) {
    mover_->exchange(job.number, *job.assembly, job.batch);
    job.far_readers = false;  // they have read; what is still open is ended behind this
  }
}

void GroupSource::finish(deliver::Job& wanted) {
  auto& job = static_cast<Share&>(wanted);
  {
    std::unique_lock guard(mutex_);
    while (job.state == Share::State::kDrawn) {
      if (changed_.wait_for(guard, base::kInterruptEvery) == std::cv_status::timeout) {
        guard.unlock();
        base::check_interrupt();
        guard.lock();
      }
    }
  }
  if (job.state == Share::State::kGathering) {
    mover_->exchange(job.number, *job.assembly, job.batch);
    job.state = Share::State::kReady;
  }
}

void GroupSource::comes_next(deliver::Job& job) {
  if (mover_->on_stream()) {
    finish(job);
  }
}

void GroupSource::fill(deliver::Job& job, std::span<const std::byte> bytes) {
  mover_->fill(job.batch, bytes);
}

void GroupSource::count(deliver::Job& delivered) {
  const auto& job = static_cast<const Share&>(delivered);
  if (job.batch.bytes == 0) {
    return;  // resumed, or empty
  }
  const std::lock_guard guard(mutex_);
  const uint32_t rank = peers_->rank();
  for (uint32_t o = 0; o < peers_->size(); ++o) {
    const uint64_t bytes = job.assembly->bytes(o);
    if (o == rank) {
      counted_.local_bytes += bytes;
    } else if (peers_->nodes()[o] == peers_->nodes()[rank]) {
      counted_.same_node_bytes += bytes;
    } else {
      counted_.remote_bytes += bytes;
    }
    Way way = access_.from(o);
    if (job.assembly->rows_at(o) == kRowsBehind) {  // of an arena that was too small, too
      way = Way::kMessage;
    }
    counted_.message_bytes += way == Way::kMessage ? bytes : 0;
    counted_.one_sided_bytes += way == Way::kRead || way == Way::kPacked ? bytes : 0;
    counted_.packed_bytes += way == Way::kPacked ? bytes : 0;
  }
}

uint64_t GroupSource::batches_per_epoch() {
  return group::batches_per_epoch(*peers_, options_, *control_);
}

void GroupSource::report(deliver::Stats& stats) {
  const std::lock_guard guard(mutex_);
  stats.gather_s = counted_.gather_s;
  stats.local_bytes = counted_.local_bytes;
  stats.same_node_bytes = counted_.same_node_bytes;
  stats.remote_bytes = counted_.remote_bytes;
  stats.message_bytes = counted_.message_bytes;
  stats.one_sided_bytes = counted_.one_sided_bytes;
  stats.packed_bytes = counted_.packed_bytes;
  stats.pack_below = pack_below_;
}

}  // namespace gear::group

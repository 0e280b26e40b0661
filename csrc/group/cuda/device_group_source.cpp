#include "group/cuda/device_group_source.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "base/threads/interrupt.h"
#include "base/threads/spin.h"
#include "select/group/offers.h"
#include "transport/typed.h"

namespace gear::group {
namespace {

using Clock = std::chrono::steady_clock;

// Updates that a rank sends another at once: those of a batch.
uint64_t update_room(const LoaderParts& parts) {
  constexpr uint64_t kLeast = 1 << 16;
  return std::min(std::max(kLeast, parts.options.batch_size),
                  UpdateExchange::most_room(parts.peers->size()));
}

// Whether this rank's GPU can draw its part; another rank's may not.
bool fits(const LoaderParts& parts) {
  const Peers& peers = *parts.peers;
  store::Shard& shard = peers.shard();
  const deliver::LoaderOptions& options = parts.options;
  const bool one_node =
      std::ranges::all_of(peers.nodes(), [&](uint32_t node) { return node == peers.nodes()[0]; });
  const bool by_chance = options.sampler.policy == select::Policy::kUniform ||
                         (options.sampler.policy == select::Policy::kWeighted &&
                          options.sampler.unit == store::Unit::kStep);
  const bool own_gpu =
      shard.options().tier != memory::Tier::kDevice || shard.region().device() == options.device;
  const uint64_t rows = options.batch_size * peers.size();
  return parts.by_kernels && !parts.access.moves_rows() && options.device >= 0 && one_node &&
         by_chance && own_gpu && shard.index().options().max_times_sampled == 0 &&
         !options.packed && rows <= UINT32_MAX / 2 &&
         OwnedSlots::fit(peers.size(), shard.index().num_slots());
}

// The buffer's exchange of updates between GPUs, made for its first loader that has weights; null
// where that one is on another GPU.
std::shared_ptr<UpdateExchange> updates_of(const LoaderParts& parts) {
  Peers& peers = *parts.peers;
  if (const auto& there = peers.outbox().device_updates()) {
    auto exchange = std::dynamic_pointer_cast<UpdateExchange>(there);
    return exchange && exchange->device() == parts.options.device ? exchange : nullptr;
  }
  store::Shard& shard = peers.shard();
  std::vector<uint64_t> slots;
  for (uint32_t r = 0; r < peers.size(); ++r) {
    slots.push_back(peers.num_slots(r));
  }
  const auto lock = shard.lock_settled();
  const auto mirror = store::device_index(shard, parts.options.device);
  mirror->require_priorities();
  return std::make_shared<UpdateExchange>(shard, mirror, peers.rank(), slots, update_room(parts));
}

select::SamplerOptions offered_as(select::SamplerOptions options) {
  // What is offered is the same; that the GPU's priorities are not taken back is the point.
  options.policy = select::Policy::kUniform;
  return options;
}

}  // namespace

struct DeviceGroupSource::Share : deliver::Job {
  uint64_t number = 0;
  uint64_t meeting = 0;  // 0: none, a resumed batch
};

std::unique_ptr<deliver::Source> DeviceGroupSource::make(LoaderParts& parts) {
  const auto all = transport::allgather(*parts.control, static_cast<uint8_t>(fits(parts) ? 1 : 0));
  if (std::ranges::find(all, uint8_t{0}) != all.end()) {
    return nullptr;
  }
  const base::OnDevice on(parts.options.device);
  const bool weighted = parts.options.sampler.policy == select::Policy::kWeighted;
  std::shared_ptr<UpdateExchange> updates = weighted ? updates_of(parts) : nullptr;
  // A rank whose loader is on another GPU has none: its memory has no room for what others' kernels
  // would write there. Then the hosts tell the updates, on all ranks.
  const auto have = transport::allgather(*parts.control, static_cast<uint8_t>(updates ? 1 : 0));
  if (std::ranges::find(have, uint8_t{0}) != have.end()) {
    updates = nullptr;
  }
  const uint64_t bytes = DeviceGroupDraw::memory_bytes(parts, updates.get());
  auto memory = PeerMemory::make(*parts.peers, bytes, parts.options.device, *parts.control);
  if (!memory) {
    return nullptr;
  }
  if (updates && !parts.peers->outbox().device_updates()) {
    parts.peers->outbox().set_device_updates(updates);
  }
  return std::unique_ptr<DeviceGroupSource>(
      new DeviceGroupSource(std::move(parts), std::move(memory), updates));
}

std::unique_ptr<deliver::Source> make_device_group_source(LoaderParts& parts) {
  return DeviceGroupSource::make(parts);
}

DeviceGroupSource::DeviceGroupSource(LoaderParts parts, std::unique_ptr<PeerMemory> memory,
                                     std::shared_ptr<UpdateExchange> updates)
    : parts_(std::move(parts)),
      shard_(parts_.peers->shard()),
      law_(parts_.options.sampler),
      rank_(parts_.peers->rank()),
      size_(parts_.peers->size()),
      updates_(std::move(updates)),
      draw_(parts_, std::move(memory), updates_),
      assignment_(parts_.peers->nodes()),
      board_(std::make_shared<ReadBoard>(*parts_.peers, parts_.number, *parts_.control)),
      passed_(board_->passed_by_gpu(parts_.options.device)),
      readers_(draw_.readers()),
      offered_(offered_as(parts_.options.sampler)),
      agreement_(*parts_.peers, offered_, *parts_.control,
                 updates_ ? Agreement::Updates::kByCaller : Agreement::Updates::kByHosts) {
  const deliver::LoaderOptions& options = parts_.options;
  const memory::Tier tier = shard_.options().tier;
  const bool in_gpu = tier == memory::Tier::kDevice;
  facts_ = {parts_.layout, in_gpu ? plan::Path::kDevice : plan::Path::kZeroCopy, tier, true,
            &shard_};
  const size_t depth = options.prefetch + 2;
  blocks_ = deliver::make_device_blocks(parts_.layout->bytes, depth, memory::Tier::kDevice,
                                        options.device);
  blocks_->make(depth);
}

DeviceGroupSource::~DeviceGroupSource() {
  const base::OnDevice on(parts_.options.device, std::nothrow);
  try {
    leave([] {});
  } catch (const base::Error&) {  // the GPU is lost
  }
  draw_.meeting().give_up();
  draw_.drain();
}

void DeviceGroupSource::end() {
  const base::OnDevice on(parts_.options.device);
  leave(base::check_interrupt);
}

// Waits for the batches in flight, then for the others, whose kernels write into this rank's memory
// and read its pages until they come here or end; neither longer than the group's time-out. `look`
// may throw.
void DeviceGroupSource::leave(const std::function<void()>& look) {
  bool failed = false;  // the group
  const auto wait = [&](const auto& done) {
    const Clock::time_point start = Clock::now();
    Clock::time_point next_look = start + base::kInterruptEvery;
    while (!done() && base::seconds_since(start) < parts_.control->timeout_s()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (Clock::now() >= next_look) {
        look();
        failed = failed || group_failed();
        next_look = Clock::now() + base::kInterruptEvery;
      }
    }
  };
  if (failure_) {
    draw_.meeting().give_up();
  }
  const base::Event met = draw_.point_now();
  wait([&] { return met.done_or_lost() || someone_ended() || failed; });
  draw_.meeting().give_up();
  draw_.drain();
  draw_.close_peers();
  board_->passed(UINT64_MAX);
  wait([&] {
    bool all = true;
    for (uint32_t r = 0; r < size_; ++r) {
      all = all && board_->has_passed(r, UINT64_MAX);
    }
    return all;
  });
}

std::unique_ptr<deliver::Job> DeviceGroupSource::make_job() { return std::make_unique<Share>(); }

bool DeviceGroupSource::draw(deliver::Job& drawn, bool ahead, std::optional<double> timeout_s) {
  auto& job = static_cast<Share&>(drawn);
  job.meeting = 0;
  if (failure_) {
    job.outcome = deliver::Job::Outcome::kFailed;
    job.error = failure_;
    return true;
  }
  const base::OnDevice on(parts_.options.device);
  std::shared_ptr<deliver::DeviceBlock> block;
  std::exception_ptr error;
  try {
    block = blocks_->acquire();
  } catch (...) {  // the others are told, by a draw that then fails on all
    error = std::current_exception();
  }
  try {
    return draw_by_attempts(
        *parts_.peers, parts_.options, ahead, timeout_s, error,
        [&](const Agreement::Terms& terms) { return attempt(job, terms, block); });
  } catch (const base::InvalidArgument&) {
    throw;
  } catch (const base::OutOfMemory&) {
    throw;
  } catch (const base::TransportError&) {  // for good; the others know
    failure_ = std::current_exception();
    draw_.meeting().give_up();
    throw;
  } catch (...) {  // for good: this rank is out of step with the others
    failure_ = std::current_exception();
    lost_ = true;
    draw_.meeting().give_up();
    throw;
  }
}

Agreement::Round DeviceGroupSource::attempt(Share& job, const Agreement::Terms& terms,
                                            std::shared_ptr<deliver::DeviceBlock>& block) {
  const base::NvtxRange range("gear.select");
  Agreement::Terms own_terms = terms;
  own_terms.beta = law_.beta();
  const Agreement::Round round = agreement_.agree(
      own_terms, sizeof(DeviceGroupDraw::Offer),
      [&](store::Index& index, std::span<std::byte> out) {
        const DeviceGroupDraw::Offer own{select::counted(offered_, index).total(),
                                         updates_ ? updates_->kept() : 0};
        std::memcpy(out.data(), &own, sizeof own);
      },
      offers_);
  if (round != Agreement::Round::kDrawn) {
    return round;
  }
  const EndDraw end(shard_);  // takes the lock, which is given up before
  std::unique_lock<std::mutex> lock = shard_.lock();
  deliver::Draw draw(shard_, lock);
  store::Read read;
  try {
    shard_.wait_for_gpu(lock, [this] { return draw_.can_sync(); });
    draw_.sync();
    job.number = number_++;
    describe(job.batch);
    std::vector<DeviceGroupDraw::Offer> offers(size_);
    std::memcpy(offers.data(), offers_.data(), size_ * sizeof(DeviceGroupDraw::Offer));
    job.meeting = draw_.launch({.number = job.number,
                                .made = law_.position().numbers.at(0),
                                .beta = law_.beta(),
                                .offers = offers,
                                .passed = passed_},
                               *block);
    law_.chance()->next(draw_.draws(), 0, draw_.draws());
    shard_.index().count_sampled(parts_.options.batch_size);
    draw.commit(parts_.options.batch_size, job.taken, &read);
  } catch (...) {  // whatever it is: the others have begun this batch
    failure_ = std::current_exception();
    lost_ = true;
    draw_.meeting().give_up();
    throw;
  }
  read.end_when(std::make_shared<ReadersEnd>(board_, job.number, readers_));
  deliver::put_block(std::move(block), job.batch);
  return round;
}

void DeviceGroupSource::describe(plan::Batch& batch) const {
  const deliver::LoaderOptions& options = parts_.options;
  batch.layout = facts_.layout;
  batch.path = facts_.path;
  batch.items = options.batch_size;
  for (const plan::BatchLayout::ColumnOutput& output : facts_.layout->outputs) {
    batch.bytes +=
        options.batch_size * output.window_rows * shard_.layout().step_bytes[output.column];
  }
  for (const plan::BatchLayout::SharedWindow& shared : facts_.layout->windows) {
    batch.rows.push_back(options.batch_size * shared.window.length());
  }
}

void DeviceGroupSource::finish(deliver::Job& wanted) {
  auto& job = static_cast<Share&>(wanted);
  if (job.meeting == 0 || job.error) {
    return;
  }
  try {
    wait_met(job);
  } catch (const base::TransportError&) {
    failure_ = std::current_exception();
    job.outcome = deliver::Job::Outcome::kFailed;
    job.error = failure_;
  } catch (const base::InvalidArgument&) {
    job.outcome = deliver::Job::Outcome::kFailed;
    job.error = std::current_exception();
  }
}

void DeviceGroupSource::wait_met(const Share& job) {
  const base::NvtxRange range("gear.wait");
  DeviceMeeting::State state{};
  const auto is_over = [&] {
    state = draw_.meeting().state();
    return state.met >= job.meeting || state.missing != 0;
  };
  while (!base::spin_until(base::kInterruptEvery, is_over)) {
    base::check_interrupt();
    if (group_failed()) {
      draw_.meeting().give_up();
      parts_.control->look();  // throws its words
    }
    if (someone_ended()) {
      draw_.meeting().give_up();
    }
  }
  if (state.met < job.meeting) {
    raise_missing(state.missing);
  }
  const DeviceGroupDraw::Counts& counts = draw_.counts(job.number);
  if (std::ranges::all_of(counts.drawn, [](uint32_t drawn) { return drawn == 0; })) {
    select::throw_weightless();
  }
}

void DeviceGroupSource::raise_missing(uint32_t missing) const {
  std::string ranks;
  for (uint32_t r = 0; r < size_; ++r) {
    if ((missing >> r & 1) != 0) {
      ranks +=
          base::cat(ranks.empty() ? "" : ", ", "rank ", r, " (pid ", parts_.peers->process(r).pid,
                    ")", board_->has_ended(r) ? ", which has ended" : "");
    }
  }
  throw base::TransportError(base::cat(
      "[loader] ", ranks, " did not come to a batch that all ranks had begun to draw, within ",
      parts_.control->timeout_s(), " s or before it ended: look at its own messages, or raise ",
      "timeout_s (GEAR_TIMEOUT_S) where its GPU is only late"));
}

bool DeviceGroupSource::group_failed() const {
  try {
    parts_.control->look();
  } catch (const base::TransportError&) {
    return true;
  }
  return false;
}

bool DeviceGroupSource::someone_ended() const {
  for (uint32_t r = 0; r < size_; ++r) {
    if (r != rank_ && board_->has_ended(r)) {
      return true;
    }
  }
  return false;
}

std::vector<uint64_t> DeviceGroupSource::received(const DeviceGroupDraw::Counts& counts) {
  std::vector<uint64_t> items(size_);
  if (parts_.group.locality == Locality::kOff) {
    std::copy_n(counts.received, size_, items.begin());
    return items;
  }
  const std::vector<uint64_t> drawn(counts.drawn, counts.drawn + size_);
  for (uint32_t r = 0; r < size_; ++r) {
    for (const AssignedRun& run : assignment_.runs(drawn, r)) {
      items[r] += run.consumer == rank_ ? run.count : 0;
    }
  }
  return items;
}

void DeviceGroupSource::count(deliver::Job& delivered) {
  const auto& job = static_cast<const Share&>(delivered);
  if (job.meeting == 0) {
    return;  // resumed
  }
  const std::vector<uint64_t> items = received(draw_.counts(job.number));
  const uint64_t item_bytes = job.batch.bytes / parts_.options.batch_size;
  const std::lock_guard guard(mutex_);
  for (uint32_t r = 0; r < size_; ++r) {
    (r == rank_ ? counted_.local_bytes : counted_.same_node_bytes) += items[r] * item_bytes;
  }
}

void DeviceGroupSource::fill(deliver::Job& filled, std::span<const std::byte> bytes) {
  auto& job = static_cast<Share&>(filled);
  const base::OnDevice on(parts_.options.device);
  std::shared_ptr<deliver::DeviceBlock> block = blocks_->acquire();
  const base::Stream stream(parts_.options.device);  // no training step before it, so no lock
  block->fill(bytes, stream);
  job.meeting = 0;
  deliver::put_block(std::move(block), job.batch);
}

uint64_t DeviceGroupSource::batches_per_epoch() {
  return group::batches_per_epoch(*parts_.peers, parts_.options, *parts_.control);
}

void DeviceGroupSource::report(deliver::Stats& stats) {
  const std::lock_guard guard(mutex_);
  stats.local_bytes = counted_.local_bytes;
  stats.same_node_bytes = counted_.same_node_bytes;
}

}  // namespace gear::group

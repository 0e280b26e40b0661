#include <algorithm>
#include <chrono>
#include <functional>

#include "base/errors.h"
#include "base/nvtx.h"
#include "deliver/cuda/device_collector.h"
#include "link/link_cache.h"
#include "link/pass_size.h"

namespace gear::deliver {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTimedEvery =
    8;  // batches: to ask events for their time costs some microseconds

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes that leave the store; padding counts where nobody counts it.
uint64_t bytes_read(const plan::Batch& batch, const store::PageLayout& pages) {
  const plan::BatchLayout& layout = *batch.layout;
  uint64_t bytes = 0;
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    bytes += batch.rows[layout.window_of[o]] * pages.step_bytes[layout.outputs[o].column];
  }
  return bytes;
}

}  // namespace

DeviceCollector::DeviceCollector(std::shared_ptr<store::Shard> shard, CollectorOptions options)
    : shard_(std::move(shard)),
      options_(std::move(options)),
      device_(options_.device >= 0 ? options_.device : shard_->region().device()) {
  const memory::Tier tier = shard_->options().tier;
  GEAR_CHECK(tier == memory::Tier::kDevice || (tier == memory::Tier::kPinned && device_ >= 0));
  plan::check_outputs(options_.outputs, shard_->schema(), options_.batch_size,
                      shard_->index().num_slots());
  const base::OnDevice on(device_);
  layout_ = std::make_shared<plan::BatchLayout>(shard_->schema(), options_.outputs,
                                                options_.batch_size, options_.packed);
  const bool ordered = tier == memory::Tier::kPinned &&
                       link::link_to(device_).order_pays(*layout_, shard_->layout(),
                                                         shard_->index().options().num_pages);
  const size_t depth = options_.prefetch + 2;  // one that the consumer has, one on its way to it
  const bool to_host = options_.device < 0;
  blocks_ = std::make_shared<DeviceBlockPool>(
      layout_->bytes, depth, to_host ? memory::Tier::kPinned : memory::Tier::kDevice, device_);
  if (to_host) {
    staging_ = base::DeviceArray<std::byte>(layout_->bytes, device_);
  }
  std::vector<std::shared_ptr<DeviceBlock>> made;
  for (size_t i = 0; i < depth; ++i) {
    made.push_back(blocks_->acquire());
  }

  const auto lock = shard_->lock();
  store::Index& index = shard_->index();
  const uint64_t num_pages = index.options().num_pages;
  const size_t group =
      ordered ? link::pass_size(link::link_to(device_), *layout_, shard_->layout(), num_pages,
                                options_.prefetch, gather::kMostGatherBlocks)
              : 0;
  route_.emplace(*shard_, layout_, device_, group);
  shard_->settle();
  device_sampler_ =
      select::make_device_sampler(options_.sampler, index, route_->mirror(), options_.batch_size);
  if (!device_sampler_) {
    host_sampler_ = select::make_sampler(options_.sampler, index);
    upload_.emplace(options_.batch_size, shard_->layout().page_steps, depth, device_);
  } else if (device_sampler_->capturable() && route_->local() && !options_.packed) {
    graphs_.emplace(2 * depth, device_);
  }
  index.require_lookahead(plan::lookahead(options_.outputs));
  stats_.path = tier == memory::Tier::kDevice ? plan::Path::kDevice : plan::Path::kZeroCopy;
  stats_.tier = tier;
  stats_.selects_on_device = device_sampler_ != nullptr;
}

DeviceCollector::~DeviceCollector() { route_->stream().drain(); }

std::unique_ptr<DeviceCollector::Job> DeviceCollector::idle_job() {
  std::unique_ptr<Job> job;
  if (idle_.empty()) {
    job = std::make_unique<Job>();
    if (options_.packed) {
      job->totals = base::PinnedArray<plan::PlanTotals>(layout_->windows.size(), device_);
    }
  } else {
    job = std::move(idle_.back());
    idle_.pop_back();
  }
  job->resolved = job->restored = job->epoch_end = false;
  job->group.reset();
  job->timed_batches = 1;
  job->error = nullptr;
  return job;
}

uint64_t DeviceCollector::select() {
  const base::NvtxRange range("gear.select");
  if (device_sampler_) {
    return device_sampler_->advance(options_.batch_size);
  }
  if (select::needs_priorities(options_.sampler)) {
    shard_->settle();
  }
  selection_.clear();
  host_sampler_->select(shard_->index(), options_.batch_size, selection_);
  return selection_.size();
}

bool DeviceCollector::issue(std::optional<double> timeout_s) {
  auto lock = shard_->lock();
  shard_->poll_reads();
  route_->mirror().raise_failed_update();
  if (!wait_to_draw(*shard_, lock, options_, timeout_s, !pending_.empty())) {
    return false;
  }
  std::unique_ptr<Job> job = idle_job();
  job->block = blocks_->acquire();  // before the draw, which would be lost if there is no memory
  route_->sync();
  uint64_t items = 0;
  try {
    items = select();
  } catch (const base::Error&) {
    job->error = std::current_exception();  // delivered in its place, after what was drawn before
  }
  if (items == 0) {
    job->epoch_end = !job->error;
    job->block.reset();
    pending_.push_back(std::move(job));
    return true;
  }
  shard_->rate_limiter().sampled(items);
  enqueue(*job, items);
  shard_->index().release_spent();
  lock.unlock();
  shard_->notify_progress();
  pending_.push_back(std::move(job));
  return true;
}

void DeviceCollector::enqueue(Job& job, uint64_t items) {
  plan::Batch& batch = job.batch;
  batch.layout = layout_;
  batch.path = stats_.path;
  batch.items = items;
  for (const plan::BatchLayout::SharedWindow& shared : layout_->windows) {
    batch.rows.push_back(options_.packed ? 0 : items * shared.window.length());
  }
  batch.bytes = bytes_read(batch, shard_->layout());
  job.resolved = !options_.packed;
  const cudaStream_t stream = route_->stream();
  look_at_time(*job.block);
  job.block->note_bytes(0);
  job.block->begin_fill(stream);
  if (graphs_ && items == options_.batch_size) {
    const auto launches = [&] { launch(job, items); };
    graphs_->run(job.block->data(), stream, std::ref(launches));
  } else {
    launch(job, items);
  }
  if (!route_->grouped()) {
    job.block->end_fill(stream);
    route_->hold_pages();
  }
  put_block(job.block, batch);
}

void DeviceCollector::launch(Job& job, uint64_t items) {
  const cudaStream_t stream = route_->stream();
  std::byte* block = staging_.size() > 0 ? staging_.get() : job.block->device_data();
  const select::DeviceDraw draw{route_->slots(),
                                reinterpret_cast<float*>(block + layout_->probabilities),
                                reinterpret_cast<float*>(block + layout_->weights)};
  {
    const base::NvtxRange range("gear.select");
    if (device_sampler_) {
      device_sampler_->launch(items, draw);
    } else {
      upload_->send(selection_, draw, stream);
    }
  }
  if (route_->grouped()) {
    const GatherGroup::Place place =
        route_->add(options_.sampler.unit, items, job.block, job.totals.get());
    job.group = place.group;
    job.timed_batches = items == options_.batch_size ? place.batches : 0;
    return;
  }
  route_->launch(options_.sampler.unit, items, block, job.totals.get());
  if (block != staging_.get()) {
    return;
  }
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(job.block->data(), block, layout_->bytes, cudaMemcpyDeviceToHost, stream));
}

void DeviceCollector::begin(const Job& job) {
  if (job.group) {
    route_->group().gather(*job.group);
  }
}

void DeviceCollector::resolve(Job& job) {
  begin(job);
  const bool to_host = job.block && job.block->device() < 0;
  if (!job.block || (job.resolved && !to_host)) {
    return;
  }
  const Clock::time_point start = Clock::now();
  {
    const base::NvtxRange range("gear.wait");
    job.block->wait();
  }
  stats_.wait_s += seconds_since(start);
  if (job.resolved) {
    return;
  }
  for (size_t w = 0; w < job.batch.rows.size(); ++w) {
    job.batch.rows[w] = job.totals[w].rows;
  }
  job.batch.bytes = bytes_read(job.batch, shard_->layout());
  job.resolved = true;
}

void DeviceCollector::count(const Job& job) {
  const plan::Batch& batch = job.batch;
  ++stats_.batches;
  stats_.items += batch.items;
  stats_.bytes += batch.bytes;
  job.block->note_bytes(job.restored ? 0 : batch.bytes * job.timed_batches);
}

void DeviceCollector::look_at_time(const DeviceBlock& block) {
  if (block.noted_bytes() == 0 || enqueued_++ % kTimedEvery != 0 || !block.filled()) {
    return;
  }
  timed_s_ += block.fill_s();
  timed_bytes_ += block.noted_bytes();
}

BatchSource::Next DeviceCollector::next(std::optional<double> timeout_s, plan::Batch& out) {
  const base::OnDevice on(device_);
  const Clock::time_point start = Clock::now();
  if (pending_.empty() && !issue(timeout_s)) {
    stats_.wait_s += seconds_since(start);
    return Next::kTimedOut;
  }
  // Nothing is drawn beyond the end of an epoch, or an error, until the consumer has reached it.
  while (pending_.size() <= options_.prefetch && !pending_.back()->epoch_end &&
         !pending_.back()->error) {
    if (!issue(0.0)) {
      break;
    }
  }
  resolve(*pending_.front());
  std::unique_ptr<Job> job = std::move(pending_.front());
  pending_.pop_front();
  const bool epoch_end = job->epoch_end;
  const std::exception_ptr error = job->error;
  if (!epoch_end && !error) {
    count(*job);
    out = std::move(job->batch);
  }
  job->batch = plan::Batch{};
  job->block.reset();
  idle_.push_back(std::move(job));
  if (error) {
    std::rethrow_exception(error);
  }
  return epoch_end ? Next::kEpochEnd : Next::kBatch;
}

void DeviceCollector::set_beta(double beta) {
  const base::OnDevice on(device_);
  const auto lock = shard_->lock();
  if (device_sampler_) {
    device_sampler_->set_beta(beta);
  } else {
    host_sampler_->set_beta(beta);
  }
}

uint64_t DeviceCollector::batches_per_epoch() {
  const auto lock = shard_->lock();
  return select::batches_per_epoch(options_.sampler, shard_->index(), options_.batch_size);
}

BatchSource::State DeviceCollector::state() {
  const base::OnDevice on(device_);
  State state;
  for (const auto& job : pending_) {
    if (job->error) {
      std::rethrow_exception(job->error);
    }
    PendingBatch pending{job->epoch_end, 0, {}, {}};
    if (!job->epoch_end) {
      resolve(*job);
      pending.items = job->batch.items;
      pending.rows = job->batch.rows;
      pending.data = copy_of(job->batch);
    }
    state.pending.push_back(std::move(pending));
  }
  const auto lock = shard_->lock();
  state.position = device_sampler_ ? device_sampler_->position() : host_sampler_->position();
  return state;
}

void DeviceCollector::drop_pending() {
  if (route_->grouped()) {
    route_->group().drop();
  }
  for (auto& job : pending_) {
    job->batch = plan::Batch{};
    job->block.reset();
    idle_.push_back(std::move(job));
  }
  pending_.clear();
}

void DeviceCollector::restore(const State& state) {
  check_pending(state, *layout_);
  const base::OnDevice on(device_);
  drop_pending();
  const auto lock = shard_->lock();
  for (const PendingBatch& pending : state.pending) {
    std::unique_ptr<Job> job = idle_job();
    job->resolved = job->restored = true;
    job->epoch_end = pending.epoch_end;
    if (!pending.epoch_end) {
      job->batch.layout = layout_;
      job->batch.path = stats_.path;
      job->batch.items = pending.items;
      job->batch.rows = pending.rows;
      job->block = blocks_->acquire();
      job->block->fill(pending.data, route_->stream());
      put_block(job->block, job->batch);
    }
    pending_.push_back(std::move(job));
  }
  if (device_sampler_) {
    device_sampler_->restore(state.position);
  } else {
    host_sampler_->restore(state.position);
  }
}

BatchSource::Stats DeviceCollector::stats() {
  Stats stats = stats_;
  if (timed_s_ > 0) {
    const double bytes_per_s = static_cast<double>(timed_bytes_) / timed_s_;
    stats.gb_per_s = bytes_per_s / 1e9;
    stats.gather_s = static_cast<double>(stats.bytes) / bytes_per_s;
  }
  return stats;
}

}  // namespace gear::deliver

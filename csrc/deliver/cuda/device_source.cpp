#include "deliver/cuda/device_source.h"

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "link/link_cache.h"

namespace gear::deliver {
namespace {

// Batches: to record events, and to ask them for their time, costs some microseconds.
constexpr uint64_t kTimedEvery = 8;

// Bytes that leave the store; padding counts where nobody counts it.
uint64_t bytes_read(const plan::Batch& batch, const store::PageLayout& pages) {
  const plan::BatchLayout& layout = *batch.layout;
  uint64_t bytes = 0;
  for (size_t o = 0; o < layout.outputs.size(); ++o) {
    bytes += batch.rows[layout.window_of[o]] * pages.step_bytes[layout.outputs[o].column];
  }
  return bytes;
}

// Null for a job without a batch.
DeviceBlock* block_of(const Job& job) {
  return static_cast<DeviceBlock*>(job.batch.delivery.get());
}

}  // namespace

DeviceSource::DeviceSource(std::shared_ptr<store::Shard> shard, Request request)
    : shard_(std::move(shard)),
      options_(std::move(request.options)),
      device_(options_.device >= 0 ? options_.device : shard_->region().device()) {
  const memory::Tier tier = shard_->options().tier;
  GEAR_CHECK(tier == memory::Tier::kDevice || (tier == memory::Tier::kPinned && device_ >= 0));
  const base::OnDevice on(device_);
  const std::shared_ptr<const plan::BatchLayout> layout = std::move(request.layout);
  const bool ordered = tier == memory::Tier::kPinned &&
                       link::link_to(device_).order_pays(*layout, shard_->layout(),
                                                         shard_->index().options().num_pages);
  const size_t depth = options_.prefetch + 2;  // one that the consumer has, one on its way to it
  const bool to_host = options_.device < 0;
  blocks_ = make_device_blocks(layout->bytes, depth,
                               to_host ? memory::Tier::kPinned : memory::Tier::kDevice, device_);
  blocks_->make(depth);

  store::Index& index = shard_->index();
  const uint64_t num_pages = index.options().num_pages;
  DeviceRoute::Options route;
  if (ordered) {
    route.joint = link::link_to(device_).pass_size(*layout, shard_->layout(), num_pages,
                                                   options_.prefetch, gather::kMostGatherBlocks);
  }
  route.graphs = 2 * depth;
  route.to_host = to_host;
  route_.emplace(*shard_, layout, device_, route);
  auto lock = shard_->lock();
  shard_->rate_limiter().check_batch(options_.batch_size);
  static_cast<void>(shard_->settle(lock));  // no draw over ranks is out beside this source
  if (select::draws_on_device(options_.sampler, index)) {
    device_sampler_ = select::DeviceSampler::make(
        {options_.sampler, index, route_->mirror(), options_.batch_size});
  } else {
    host_sampler_.emplace(options_.sampler, index);
    upload_.emplace(options_.batch_size, shard_->layout().page_steps, depth, device_);
  }
  offered_ = &select::counted(options_.sampler, index);
  looks_ = host_sampler_ && select::needs_priorities(options_.sampler);
  facts_ = {layout, tier == memory::Tier::kDevice ? plan::Path::kDevice : plan::Path::kZeroCopy,
            tier, device_sampler_ != nullptr, shard_.get()};
}

DeviceSource::~DeviceSource() { route_->drain(); }

std::unique_ptr<Job> DeviceSource::make_job() {
  auto job = std::make_unique<Fill>();
  if (options_.packed) {
    job->totals = base::PinnedArray<plan::PlanTotals>(facts_.layout->windows.size(), device_);
  }
  return job;
}

uint64_t DeviceSource::select() {
  const base::NvtxRange range("gear.select");
  if (device_sampler_) {
    return device_sampler_->advance(options_.batch_size);
  }
  selection_.clear();
  host_sampler_->select(shard_->index(), options_.batch_size, selection_);
  return selection_.size();
}

void DeviceSource::launch_select(uint64_t items, const select::DeviceDraw& draw) {
  const base::NvtxRange range("gear.select");
  if (device_sampler_) {
    device_sampler_->launch(items, draw);
  } else {
    upload_->send(selection_, draw, route_->stream());
  }
}

bool DeviceSource::draw(Job& drawn, bool ahead, std::optional<double> timeout_s) {
  auto& job = static_cast<Fill&>(drawn);
  const base::OnDevice on(device_);
  std::shared_ptr<DeviceBlock> block = blocks_->acquire();  // before the draw, or that were lost
  job.filled = {};
  job.resolved = true;
  auto lock = shard_->lock();
  route_->mirror().raise_failed_update();
  shard_->wait_for_gpu(
      lock, [this] { return route_->mirror().can_sync() && (!upload_ || upload_->has_room()); });
  Draw draw(*shard_, lock);
  if (!draw.wait(options_, *offered_, looks_, ahead, timeout_s)) {
    return false;
  }
  if (ahead && host_sampler_ && host_sampler_->is_weightless(shard_->index())) {
    return false;  // there may be something to draw when the batch is asked for
  }
  route_->sync();
  uint64_t items = 0;
  try {
    items = select();
  } catch (const base::Error&) {
    job.outcome = Job::Outcome::kFailed;
    job.error = std::current_exception();
  }
  if (items == 0) {
    if (!job.error) {
      job.outcome = Job::Outcome::kEpochEnd;
    }
    return true;
  }
  try {
    gather(job, std::move(block), items);
  } catch (...) {
    draw_again_from(job.before);
    throw;
  }
  store::Read read;
  draw.commit(items, job.taken, job.filled.end ? &read : nullptr);
  if (job.filled.end) {
    read.end_when(job.filled.end);
  }
  return true;
}

void DeviceSource::draw_again_from(const select::SamplerPosition& position) noexcept {
  try {
    law().restore(position);
  } catch (...) {  // the GPU is lost, and with it the law
  }
}

void DeviceSource::gather(Fill& job, std::shared_ptr<DeviceBlock> block, uint64_t items) {
  plan::Batch& batch = job.batch;
  batch.layout = facts_.layout;
  batch.path = facts_.path;
  batch.items = items;
  for (const plan::BatchLayout::SharedWindow& shared : facts_.layout->windows) {
    batch.rows.push_back(options_.packed ? 0 : items * shared.window.length());
  }
  batch.bytes = bytes_read(batch, shard_->layout());
  job.resolved = !options_.packed;
  look_at_time(*block);
  block->note_bytes(0);
  const bool timed = enqueued_++ % kTimedEvery == 0;
  const bool repeats = device_sampler_ && device_sampler_->capturable() && !options_.packed &&
                       items == options_.batch_size;
  DeviceRoute::Fill fill = route_->begin({options_.sampler.unit, items, block, job.totals.get(),
                                          repeats, timed, device_sampler_ != nullptr});
  if (!fill.replayed()) {
    launch_select(items, fill.draw());
    route_->plan_and_gather(fill);
  }
  job.filled = fill.end();
  put_block(std::move(block), batch);
}

void DeviceSource::finish(Job& wanted) {
  auto& job = static_cast<Fill&>(wanted);
  if (job.filled.end) {
    const base::OnDevice on(device_);
    job.filled.end->hurry();
    route_->raise_failed();
  }
  DeviceBlock* const block = block_of(job);
  const bool to_host = block != nullptr && block->device() < 0;
  if (job.resolved && !to_host) {
    return;
  }
  const base::OnDevice on(device_);
  {
    const base::NvtxRange range("gear.wait");
    block->wait();
  }
  if (job.resolved) {
    return;
  }
  for (size_t w = 0; w < job.batch.rows.size(); ++w) {
    job.batch.rows[w] = job.totals[w].rows;
  }
  job.batch.bytes = bytes_read(job.batch, shard_->layout());
  job.resolved = true;
}

void DeviceSource::count(Job& delivered) {
  auto& job = static_cast<Fill&>(delivered);
  block_of(job)->note_bytes(job.batch.bytes * job.filled.timed_batches);
  job.filled = {};
}

void DeviceSource::look_at_time(const DeviceBlock& block) {
  if (block.noted_bytes() == 0 || !block.filled()) {
    return;
  }
  const std::lock_guard guard(mutex_);
  timed_s_ += block.fill_s();
  timed_bytes_ += block.noted_bytes();
}

void DeviceSource::fill(Job& filled, std::span<const std::byte> bytes) {
  auto& job = static_cast<Fill&>(filled);
  const base::OnDevice on(device_);
  std::shared_ptr<DeviceBlock> block = blocks_->acquire();
  // On a stream of its own, and so without the lock: the mirror's may have a training step to wait
  // for.
  const base::Stream stream(device_);
  block->fill(bytes, stream);
  job.filled = {nullptr, 0};  // the time of its fill says nothing of a gather
  job.resolved = true;
  put_block(std::move(block), job.batch);
}

void DeviceSource::drop() { route_->drop(); }

select::Law& DeviceSource::law() {
  return device_sampler_ ? device_sampler_->law() : host_sampler_->law();
}

void DeviceSource::report(Stats& stats) {
  const std::lock_guard guard(mutex_);
  if (timed_bytes_ > 0) {
    stats.gather_s =
        static_cast<double>(stats.bytes) * timed_s_ / static_cast<double>(timed_bytes_);
  }
}

}  // namespace gear::deliver

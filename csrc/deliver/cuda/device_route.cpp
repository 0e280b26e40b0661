#include "deliver/cuda/device_route.h"

#include <algorithm>

#include "base/errors.h"
#include "base/gpu/nvtx.h"
#include "memory/peer_device_region.h"

namespace gear::deliver {
namespace {

// Takes the lock.
std::shared_ptr<store::DeviceIndex> mirror_of(store::Shard& shard, int device) {
  const auto lock = shard.lock();
  return store::device_index(shard, device);
}

// As kernels of `device` address them.
const std::byte* pages_of(const memory::Region& region, int device) {
  if (region.device() >= 0) {
    memory::open_peer_access(device, region.device());
  }
  return region.device_data();
}

}  // namespace

DeviceRoute::DeviceRoute(store::Shard& shard, std::shared_ptr<const plan::BatchLayout> layout,
                         int device, const Options& options)
    : shard_(shard),
      mirror_(mirror_of(shard, device)),
      rows_(shard.pages().row_sink()),
      layout_(std::move(layout)),
      plan_(layout_, shard.layout(), shard.index().num_slots(), device,
            std::max<size_t>(options.joint, 1)),
      gather_(layout_, shard.layout(), gather::RowForm::kDelivered),
      pages_(pages_of(shard.region(), device)),
      most_blocks_(rows_ == nullptr ? gather::kBlocksFromHost : UINT32_MAX),
      graphs_(options.graphs, device) {
  if (options.joint > 0) {
    GEAR_CHECK(rows_ == nullptr && !options.to_host);
    joint_ = std::make_unique<JointGather>(pages_, layout_, shard.layout(),
                                           shard.index().options().num_pages, options.joint, device,
                                           stream());
  }
  if (options.to_host) {
    staging_ = base::DeviceArray<std::byte>(layout_->bytes, device);
  }
  if (rows_ != nullptr && !local()) {
    const base::OnDevice on(rows_->stream().device());
    rows_written_ = base::Event();
  }
}

DeviceRoute::~DeviceRoute() {
  joint_.reset();
  drain();
}

void DeviceRoute::sync() {
  mirror_->sync();
  if (rows_ == nullptr || local()) {
    return;
  }
  rows_->flush();
  rows_written_.record(rows_->stream());
  rows_written_.make_wait(stream());
}

DeviceRoute::Fill::Fill(DeviceRoute& route, const Filling& filling)
    : route_(route),
      filling_(filling),
      target_(route.staging_.size() > 0 ? route.staging_.get() : filling.block->device_data()),
      draw_{route.plan_.slots(), reinterpret_cast<float*>(target_ + route.layout_->probabilities),
            reinterpret_cast<float*>(target_ + route.layout_->weights)} {
  const std::optional<size_t> of_anchors = route.plan_.anchors_window();
  if (filling.named && !route.joint_ && of_anchors) {
    const plan::BatchLayout::SharedWindow& window = route.layout_->windows[*of_anchors];
    draw_.ids = reinterpret_cast<int64_t*>(target_ + route.layout_->ids);
    draw_.lengths = reinterpret_cast<int32_t*>(target_ + window.lengths);
    draw_.mask = reinterpret_cast<bool*>(target_ + window.mask);
  }
  filling.block->begin_fill(route.stream());
  if (filling.timed || route.joint_) {
    filling.block->begin_timing(route.stream());
  }
  // What another GPU's stream has to do with it cannot be captured.
  if (filling.repeats && route.local()) {
    launches_.emplace(route.graphs_, filling.block->data(), route.stream());
  }
}

Filled DeviceRoute::Fill::end() {
  if (route_.joint_) {
    return joint_;
  }
  if (launches_) {
    launches_->end();
  }
  filling_.block->end_fill(route_.stream());
  return {route_.end_of_reads(), filling_.timed ? 1U : 0U};
}

DeviceRoute::Fill DeviceRoute::begin(const Filling& filling) { return {*this, filling}; }

void DeviceRoute::plan_and_gather(Fill& fill) {
  const Filling& filling = fill.filling_;
  if (joint_) {
    fill.joint_ = joint_->add(plan_, mirror_->view(), filling.unit, filling.items, filling.block,
                              filling.totals);
    if (filling.items != layout_->batch_size) {
      fill.joint_.timed_batches = 0;
    }
    return;
  }
  {
    const base::NvtxRange range("gear.plan");
    plan_.launch(mirror_->view(), filling.unit, filling.items, fill.target_, filling.totals,
                 stream(), 0, fill.draw_.ids != nullptr);
  }
  const base::NvtxRange range("gear.gather");
  const gather::RowGather::Part part{pages_, plan_.rows()};
  gather_.gather({&part, 1}, {&fill.target_, 1}, most_blocks_, stream());
  if (staging_.size() > 0) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(filling.block->data(), fill.target_, layout_->bytes,
                                  cudaMemcpyDeviceToHost, stream()));
  }
}

std::shared_ptr<const store::ReadEnd> DeviceRoute::end_of_reads() {
  if (local()) {
    return nullptr;
  }
  if (rows_ != nullptr) {
    rows_read_.record(stream());
    rows_read_.make_wait(rows_->stream());
    return nullptr;
  }
  size_t free = 0;
  while (free < ends_.size() && ends_[free].use_count() > 1) {
    ++free;
  }
  if (free == ends_.size()) {
    ends_.push_back(std::make_shared<store::EventEnd>(stream().device()));
  }
  ends_[free]->event.record(stream());
  return ends_[free];
}

void DeviceRoute::raise_failed() const {
  if (joint_) {
    joint_->raise_failed();
  }
}

void DeviceRoute::drop() {
  if (joint_) {
    joint_->drop();
  }
}

}  // namespace gear::deliver

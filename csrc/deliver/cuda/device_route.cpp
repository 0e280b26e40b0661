#include "deliver/cuda/device_route.h"

#include <algorithm>

#include "base/errors.h"
#include "base/nvtx.h"
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

class DeviceRoute::GatherEnd final : public store::ReadEnd {
 public:
  void record(cudaStream_t stream) { event_.record(stream); }
  bool done() const noexcept override { return event_.done_or_lost(); }

 private:
  base::Event event_;
};

DeviceRoute::DeviceRoute(store::Shard& shard, std::shared_ptr<const plan::BatchLayout> layout,
                         int device, const Options& options)
    : shard_(shard),
      mirror_(mirror_of(shard, device)),
      rows_(shard.rows()),
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

std::byte* DeviceRoute::target(const DeviceBlock& block) const {
  return staging_.size() > 0 ? staging_.get() : block.device_data();
}

select::DeviceDraw DeviceRoute::draw_into(std::byte* block, bool named) const {
  select::DeviceDraw draw{plan_.slots(), reinterpret_cast<float*>(block + layout_->probabilities),
                          reinterpret_cast<float*>(block + layout_->weights)};
  if (named) {
    const plan::BatchLayout::SharedWindow& window = layout_->windows[*plan_.anchors_window()];
    draw.ids = reinterpret_cast<int64_t*>(block + layout_->ids);
    draw.lengths = reinterpret_cast<int32_t*>(block + window.lengths);
    draw.mask = reinterpret_cast<bool*>(block + window.mask);
  }
  return draw;
}

Filled DeviceRoute::gather(const Filling& filling,
                           const std::function<void(const select::DeviceDraw&)>& select) {
  DeviceBlock& block = *filling.block;
  std::byte* const target = this->target(block);
  const auto select_into_target = [&] {
    const base::NvtxRange range("gear.select");
    select(draw_into(target, takes_names(filling)));
  };
  block.begin_fill(stream());
  if (filling.timed || joint_) {
    block.begin_timing(stream());
  }
  if (joint_) {
    select_into_target();
    Filled filled = joint_->add(plan_, mirror_->view(), filling.unit, filling.items, filling.block,
                                filling.totals);
    if (filling.items != layout_->batch_size) {
      filled.timed_batches = 0;
    }
    return filled;
  }
  const auto launches = [&] {
    select_into_target();
    launch(filling, target);
  };
  // What another GPU's stream has to do with it cannot be captured.
  if (filling.repeats && local()) {
    graphs_.run(block.data(), stream(), std::ref(launches));
  } else {
    launches();
  }
  block.end_fill(stream());
  return {end_of_reads(), filling.timed ? 1U : 0U};
}

void DeviceRoute::launch(const Filling& filling, std::byte* block) {
  {
    const base::NvtxRange range("gear.plan");
    plan_.launch(mirror_->view(), filling.unit, filling.items, block, filling.totals, stream(), 0,
                 takes_names(filling));
  }
  const base::NvtxRange range("gear.gather");
  const gather::RowGather::Part part{pages_, plan_.rows()};
  gather_.gather({&part, 1}, {&block, 1}, most_blocks_, stream());
  if (staging_.size() > 0) {
    GEAR_CUDA_TRY(cudaMemcpyAsync(filling.block->data(), block, layout_->bytes,
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
    ends_.push_back(std::make_shared<GatherEnd>());
  }
  ends_[free]->record(stream());
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

#include "deliver/cuda/device_route.h"

#include <algorithm>

#include "base/errors.h"
#include "base/nvtx.h"
#include "memory/peer_device_region.h"

namespace gear::deliver {
namespace {

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
                         int device, size_t group)
    : shard_(shard),
      mirror_(*shard.mirror(device).device_index()),
      home_(shard.region().device() < 0 ? nullptr
                                        : shard.mirror(shard.region().device()).device_index()),
      plan_(layout, shard.layout(), shard.index().num_slots(), device, std::max<size_t>(group, 1)),
      gather_(layout, shard.layout(), gather::RowForm::kDelivered),
      pages_(pages_of(shard.region(), device)),
      most_blocks_(home_ == nullptr ? gather::kBlocksFromHost : UINT32_MAX) {
  if (group > 0) {
    GEAR_CHECK(home_ == nullptr);
    group_ = std::make_unique<GatherGroup>(
        pages_, layout, shard.layout(), shard.index().options().num_pages, group, device, stream());
  }
  if (home_ != nullptr && !local()) {
    const base::OnDevice on(home_->device());
    rows_written_ = base::Event();
  }
}

DeviceRoute::~DeviceRoute() {
  group_.reset();
  stream().drain();
}

void DeviceRoute::sync() {
  mirror_.sync();
  if (home_ == nullptr || local()) {
    return;
  }
  home_->sync();
  rows_written_.record(home_->stream());
  rows_written_.make_wait(stream());
}

GatherGroup::Place DeviceRoute::add(store::Unit unit, uint64_t items,
                                    std::shared_ptr<DeviceBlock> block, plan::PlanTotals* totals) {
  const uint64_t ticket = shard_.begin_read();
  try {
    GatherGroup::Place place =
        group_->add(plan_, mirror_.view(), unit, items, std::move(block), totals);
    shard_.end_read_when(ticket, place.end);
    return place;
  } catch (...) {
    shard_.end_read(ticket);
    throw;
  }
}

void DeviceRoute::launch(store::Unit unit, uint64_t items, std::byte* block,
                         plan::PlanTotals* totals) {
  {
    const base::NvtxRange range("gear.plan");
    plan_.launch(mirror_.view(), unit, items, block, totals, stream());
  }
  const base::NvtxRange range("gear.gather");
  const gather::RowGather::Part part{pages_, plan_.rows()};
  gather_.gather({&part, 1}, {&block, 1}, most_blocks_, stream());
}

void DeviceRoute::hold_pages() {
  if (local()) {
    return;
  }
  if (home_ != nullptr) {
    rows_read_.record(stream());
    rows_read_.make_wait(home_->stream());
    return;
  }
  size_t free = 0;
  while (free < ends_.size() && ends_[free].use_count() > 1) {
    ++free;
  }
  if (free == ends_.size()) {
    ends_.push_back(std::make_shared<GatherEnd>());
  }
  ends_[free]->record(stream());
  shard_.end_read_when(shard_.begin_read(), ends_[free]);
}

}  // namespace gear::deliver

#include "deliver/cuda/joint_gather.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/errors.h"
#include "base/nvtx.h"

namespace gear::deliver {

struct GatherGroup::Access {
  std::mutex mutex;
  GatherGroup* group;  // null once it is gone
};

class GatherGroup::End final : public store::ReadEnd {
 public:
  explicit End(std::shared_ptr<Access> access) : access_(std::move(access)) {}

  void open(uint64_t group) {
    group_ = group;
    closed_.store(false, std::memory_order_relaxed);
  }
  void close(cudaStream_t stream) {
    event_.record(stream);
    closed_.store(true, std::memory_order_release);
  }
  // Nothing is read any more.
  void abandon() noexcept { closed_.store(true, std::memory_order_release); }

  bool done() const noexcept override {
    return closed_.load(std::memory_order_acquire) && event_.done_or_lost();
  }

  void hurry() const noexcept override {
    if (closed_.load(std::memory_order_acquire)) {
      return;
    }
    const std::lock_guard guard(access_->mutex);
    GatherGroup* const group = access_->group;
    if (group == nullptr || group->group_ != group_) {
      return;
    }
    try {
      group->gather_open();
    } catch (...) {
      group->error_ = std::current_exception();  // for the collector's thread
    }
  }

 private:
  std::shared_ptr<Access> access_;
  base::Event event_;
  uint64_t group_ = 0;
  std::atomic<bool> closed_{true};
};

GatherGroup::GatherGroup(const std::byte* pages_on_device,
                         std::shared_ptr<const plan::BatchLayout> layout,
                         const store::PageLayout& pages, uint64_t num_pages, size_t most,
                         int device, cudaStream_t stream)
    : layout_(std::move(layout)),
      order_(pages, num_pages, device),
      gather_(layout_, pages, gather::RowForm::kAddressed),
      pages_(pages_on_device),
      most_(most),
      device_(device),
      stream_(stream),
      access_(std::make_shared<Access>()) {
  GEAR_CHECK(most >= 1 && most <= gather::kMostGatherBlocks);
  access_->group = this;
  uint64_t rows = 0;
  uint64_t longest = 0;
  for (const plan::BatchLayout::SharedWindow& shared : layout_->windows) {
    const uint64_t most_rows = most * layout_->batch_size * shared.window.length();
    rows += most_rows;
    longest = std::max(longest, most_rows);
  }
  order_.reserve(rows, longest);
}

GatherGroup::~GatherGroup() {
  try {
    drop();
  } catch (...) {  // a lost GPU: there is nothing left to drop
    if (end_) {
      end_->abandon();
    }
  }
  const std::lock_guard guard(access_->mutex);
  access_->group = nullptr;
}

GatherGroup::Place GatherGroup::add(plan::DevicePlan& plan, const store::DeviceView& view,
                                    store::Unit unit, uint64_t items,
                                    std::shared_ptr<DeviceBlock> block, plan::PlanTotals* totals) {
  const std::lock_guard guard(access_->mutex);
  if (error_) {
    std::rethrow_exception(error_);
  }
  {
    const base::NvtxRange range("gear.plan");
    plan.launch(view, unit, items, block->device_data(), totals, stream_, items_);
  }
  if (!end_) {
    for (const auto& end : ends_) {
      if (end.use_count() == 1) {
        end_ = end;
      }
    }
    if (!end_) {
      end_ = ends_.emplace_back(std::make_shared<End>(access_));
    }
    end_->open(group_);
  }
  plan_ = &plan;
  items_ += items;
  blocks_.push_back(std::move(block));
  Place place{group_, 0, end_};
  // A short batch is the last of its group, so that a row's number tells its block.
  if (blocks_.size() < most_ && items == layout_->batch_size) {
    return place;
  }
  place.batches = blocks_.size();
  gather_open();
  return place;
}

void GatherGroup::gather(uint64_t group) {
  const std::lock_guard guard(access_->mutex);
  if (error_) {
    std::rethrow_exception(error_);
  }
  if (group == group_) {
    gather_open();
  }
}

void GatherGroup::drop() {
  const std::lock_guard guard(access_->mutex);
  error_ = nullptr;
  close(false);
}

// Whatever happens, the group is closed: the rows of the next one take its place.
void GatherGroup::gather_open() {
  if (blocks_.empty()) {
    return;
  }
  try {
    close(true);
  } catch (...) {
    end_->abandon();
    end_.reset();
    blocks_.clear();
    items_ = 0;
    ++group_;
    throw;
  }
}

void GatherGroup::close(bool gathered) {
  if (blocks_.empty()) {
    return;
  }
  const base::OnDevice on(device_);
  if (gathered) {
    const base::NvtxRange range("gear.gather");
    std::array<std::byte*, gather::kMostGatherBlocks> targets{};
    for (size_t i = 0; i < blocks_.size(); ++i) {
      targets[i] = blocks_[i]->device_data();
    }
    const gather::RowGather::Part part{pages_, order_.launch(plan_->rows(), stream_)};
    gather_.gather({&part, 1}, {targets.data(), blocks_.size()}, UINT32_MAX, stream_);
  }
  for (const auto& block : blocks_) {
    block->end_fill(stream_);
  }
  end_->close(stream_);
  end_.reset();
  blocks_.clear();
  items_ = 0;
  ++group_;
}

}  // namespace gear::deliver

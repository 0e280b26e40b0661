#include "deliver/cuda/joint_gather.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/errors.h"
#include "base/gpu/nvtx.h"

namespace gear::deliver {

struct JointGather::Access {
  std::mutex mutex;
  JointGather* joint;  // null once it is gone
};

class JointGather::End final : public store::ReadEnd {
 public:
  explicit End(std::shared_ptr<Access> access) : access_(std::move(access)) {}

  void open(uint64_t pass) {
    pass_ = pass;
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
    JointGather* const joint = access_->joint;
    if (joint == nullptr || joint->pass_ != pass_) {
      return;
    }
    try {
      joint->gather_open();
    } catch (...) {  // kept, for the source's thread
    }
  }

 private:
  std::shared_ptr<Access> access_;
  base::Event event_;
  uint64_t pass_ = 0;
  std::atomic<bool> closed_{true};
};

JointGather::JointGather(const std::byte* pages_on_device,
                         std::shared_ptr<const plan::BatchLayout> layout,
                         const store::PageLayout& pages, uint64_t num_pages, size_t most,
                         int device, cudaStream_t stream)
    : layout_(std::move(layout)),
      order_(pages, num_pages * pages.page_steps, device),
      gather_(layout_, pages, gather::RowForm::kAddressed),
      pages_(pages_on_device),
      most_(most),
      device_(device),
      stream_(stream),
      access_(std::make_shared<Access>()) {
  GEAR_CHECK(most >= 1 && most <= gather::kMostGatherBlocks);
  access_->joint = this;
  uint64_t rows = 0;
  uint64_t longest = 0;
  for (const plan::BatchLayout::SharedWindow& shared : layout_->windows) {
    const uint64_t most_rows = most * layout_->batch_size * shared.window.length();
    rows += most_rows;
    longest = std::max(longest, most_rows);
  }
  order_.reserve(rows, longest);
}

JointGather::~JointGather() {
  try {
    drop();
  } catch (...) {  // a lost GPU: there is nothing left to drop
    if (end_) {
      end_->abandon();
    }
  }
  const std::lock_guard guard(access_->mutex);
  access_->joint = nullptr;
}

Filled JointGather::add(plan::DevicePlan& plan, const store::DeviceView& view, store::Unit unit,
                        uint64_t items, std::shared_ptr<DeviceBlock> block,
                        plan::PlanTotals* totals) {
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
    end_->open(pass_);
  }
  plan_ = &plan;
  items_ += items;
  blocks_.push_back(std::move(block));
  Filled filled{end_, 0};
  // A short batch is the last of its pass, so that a row's number tells its block.
  if (blocks_.size() < most_ && items == layout_->batch_size) {
    return filled;
  }
  filled.timed_batches = blocks_.size();
  gather_open();
  return filled;
}

void JointGather::raise_failed() const {
  const std::lock_guard guard(access_->mutex);
  if (error_) {
    std::rethrow_exception(error_);
  }
}

void JointGather::drop() {
  const std::lock_guard guard(access_->mutex);
  error_ = nullptr;
  close(false);
}

// Whatever happens, the pass is closed: the rows of the next one take its place.
void JointGather::gather_open() {
  if (blocks_.empty()) {
    return;
  }
  try {
    close(true);
  } catch (...) {
    error_ = std::current_exception();
    end_->abandon();
    end_.reset();
    blocks_.clear();
    items_ = 0;
    ++pass_;
    throw;
  }
}

void JointGather::close(bool gathered) {
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
    const gather::RowGather::Part part{pages_, order_.launch(plan_->rows(), stream_), nullptr,
                                       plan_->rows()};
    gather_.gather({&part, 1}, {targets.data(), blocks_.size()}, UINT32_MAX, stream_);
  }
  for (const auto& block : blocks_) {
    block->end_fill(stream_);
  }
  end_->close(stream_);
  end_.reset();
  blocks_.clear();
  items_ = 0;
  ++pass_;
}

}  // namespace gear::deliver

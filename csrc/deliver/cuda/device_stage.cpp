#include "deliver/cuda/device_stage.h"

namespace gear::deliver {

DeviceStage::DeviceStage(std::shared_ptr<const plan::BatchLayout> layout, size_t depth, int device)
    : layout_(std::move(layout)),
      depth_(depth),
      device_(device),
      stream_(device),
      blocks_(make_device_blocks(layout_->bytes, depth, memory::Tier::kDevice, device)) {}

DeviceStage::~DeviceStage() { stream_.drain(); }

void DeviceStage::send(plan::Batch& batch) {
  const std::lock_guard guard(mutex_);
  const base::OnDevice on(device_);
  give_back();
  std::shared_ptr<DeviceBlock> block = blocks_->acquire();
  if (idle_.empty()) {
    idle_.emplace_back();
  }
  base::Event done = std::move(idle_.back());
  idle_.pop_back();
  block->begin_fill(stream_);
  if (batch.items == layout_->batch_size && !layout_->packed) {
    copy(batch, 0, layout_->bytes, block->device_data());
  } else {
    copy(batch, 0, layout_->data.front(), block->device_data());
    for (size_t o = 0; o < layout_->outputs.size(); ++o) {
      const uint64_t used = batch.delivered_rows(o) * layout_->row_bytes[o];
      copy(batch, layout_->data[o], layout_->data[o] + used, block->device_data());
    }
  }
  block->end_fill(stream_);
  done.record(stream_);
  copies_.emplace_back(std::move(batch.block), std::move(done));
  put_block(std::move(block), batch);
}

void DeviceStage::copy(const plan::Batch& batch, uint64_t begin, uint64_t end, std::byte* target) {
  if (begin == end) {
    return;
  }
  GEAR_CUDA_TRY(cudaMemcpyAsync(target + begin, batch.block.get() + begin, end - begin,
                                cudaMemcpyHostToDevice, stream_));
}

void DeviceStage::give_back() {
  if (copies_.size() >= depth_) {
    copies_.front().second.synchronize();
  }
  while (!copies_.empty() && copies_.front().second.done()) {
    idle_.push_back(std::move(copies_.front().second));
    copies_.pop_front();
  }
}

}  // namespace gear::deliver

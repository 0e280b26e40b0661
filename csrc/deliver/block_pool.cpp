#include "deliver/block_pool.h"

namespace gear::deliver {

std::shared_ptr<std::byte> BlockPool::acquire() {
  std::unique_ptr<memory::Region> block;
  {
    const std::lock_guard guard(mutex_);
    if (!idle_.empty()) {
      block = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!block) {
    const memory::Tier tier = device_ < 0 ? memory::Tier::kHost : memory::Tier::kPinned;
    block = memory::make_region(tier, bytes_, {"", "", device_});
  }
  std::byte* data = block->data();
  return {data, [owner = shared_from_this(), held = block.release()](std::byte*) {
            owner->release(std::unique_ptr<memory::Region>(held));
          }};
}

void BlockPool::make(size_t count) {
  std::vector<std::shared_ptr<std::byte>> made;
  while (made.size() < count) {
    made.push_back(acquire());
  }
}

void BlockPool::release(std::unique_ptr<memory::Region> block) noexcept {
  const std::lock_guard guard(mutex_);
  if (idle_.size() < max_idle_) {
    idle_.push_back(std::move(block));
  }
}

}  // namespace gear::deliver

#include "deliver/block_pool.h"

namespace gear::deliver {

std::shared_ptr<HostBlockPool> make_host_blocks(uint64_t block_bytes, size_t max_idle, int device) {
  return base::make_shared_here<HostBlockPool>(max_idle, [block_bytes, device] {
    const memory::Tier tier = device < 0 ? memory::Tier::kHost : memory::Tier::kPinned;
    return memory::make_region(tier, block_bytes, {"", "", device});
  });
}

std::shared_ptr<std::byte> bytes_of(std::shared_ptr<memory::Region> block) {
  std::byte* const bytes = block->data();
  return {std::move(block), bytes};
}

std::shared_ptr<std::byte> host_block(uint64_t bytes) {
  return bytes_of(memory::make_region(memory::Tier::kHost, bytes));
}

}  // namespace gear::deliver

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/region.h"

namespace gear::deliver {

/// Blocks of one size in host memory, reused: a block returns here when the last tensor that views
/// it is gone, so that steady state allocates nothing and a consumer may keep a batch for as long
/// as it likes. Blocks that a GPU fills or reads are DeviceBlockPool's.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  /// Keeps at most `max_idle` blocks that nobody uses. `tier`: kHost, or kPinned for blocks that a
  /// copy engine reads or writes.
  BlockPool(uint64_t block_bytes, size_t max_idle, memory::Tier tier = memory::Tier::kHost)
      : bytes_(block_bytes), max_idle_(max_idle), tier_(tier) {}

  std::shared_ptr<std::byte> acquire();

  /// Makes `count` blocks ahead: to page-lock memory takes long, and waits for the GPU.
  void make(size_t count);

 private:
  void release(std::unique_ptr<memory::Region> block) noexcept;

  uint64_t bytes_;
  size_t max_idle_;
  memory::Tier tier_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<memory::Region>> idle_;
};

}  // namespace gear::deliver

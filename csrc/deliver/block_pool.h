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
  /// Keeps at most `max_idle` blocks that nobody uses: in host memory or, with a GPU named, pinned
  /// for that GPU's copy engines.
  BlockPool(uint64_t block_bytes, size_t max_idle, int device = -1)
      : bytes_(block_bytes), max_idle_(max_idle), device_(device) {}

  std::shared_ptr<std::byte> acquire();

  /// Makes `count` blocks ahead: to page-lock memory takes long, and waits for the GPU.
  void make(size_t count);

 private:
  void release(std::unique_ptr<memory::Region> block) noexcept;

  uint64_t bytes_;
  size_t max_idle_;
  int device_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<memory::Region>> idle_;
};

}  // namespace gear::deliver

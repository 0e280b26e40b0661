#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/region.h"

namespace gear::deliver {

/// Blocks of one size, reused: a block returns here when the last tensor that views it is gone, so
/// that steady state allocates nothing and a consumer may keep a batch for as long as it likes.
///
/// `Block` is a memory::Region, or has `bool release() noexcept`: whether it may be used again.
template <class Block>
class BlockPool : public std::enable_shared_from_this<BlockPool<Block>> {
 public:
  /// Which idle block is used next. The host's is the newest, which lies in its caches; a GPU's the
  /// oldest, which the streams that read it have most likely left.
  enum class Next : uint8_t { kNewest, kOldest };

  /// Keeps at most `max_idle` blocks that nobody uses. `make` makes one more, in the thread that
  /// asks for it, and throws OutOfMemory.
  BlockPool(size_t max_idle, Next next, std::function<std::unique_ptr<Block>()> make)
      : max_idle_(max_idle), next_(next), make_(std::move(make)) {}

  std::shared_ptr<Block> acquire() {
    std::unique_ptr<Block> block;
    {
      const std::lock_guard guard(mutex_);
      if (!idle_.empty()) {
        const auto chosen = next_ == Next::kNewest ? idle_.end() - 1 : idle_.begin();
        block = std::move(*chosen);
        idle_.erase(chosen);
      }
    }
    if (!block) {
      block = make_();
    }
    return {block.release(), [owner = this->shared_from_this()](Block* released) {
              owner->release(std::unique_ptr<Block>(released));
            }};
  }

  /// Makes `count` blocks ahead: to page-lock memory takes long, and waits for the GPU.
  void make(size_t count) {
    std::vector<std::shared_ptr<Block>> made;
    while (made.size() < count) {
      made.push_back(acquire());
    }
  }

 private:
  void release(std::unique_ptr<Block> block) noexcept {
    bool reusable = true;
    if constexpr (requires { block->release(); }) {
      reusable = block->release();
    }
    const std::lock_guard guard(mutex_);
    if (!reusable) {
      retired_.push_back(std::move(block));
    } else if (idle_.size() < max_idle_) {
      idle_.push_back(std::move(block));
    }
  }

  size_t max_idle_;
  Next next_;
  std::function<std::unique_ptr<Block>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
  std::vector<std::unique_ptr<Block>> retired_;  ///< of unknown readers; freed with the pool
};

using HostBlockPool = BlockPool<memory::Region>;

/// Blocks of host memory, which a host fills; with a GPU named, pinned for that GPU's copy engines.
std::shared_ptr<HostBlockPool> make_host_blocks(uint64_t block_bytes, size_t max_idle,
                                                int device = -1);
/// A block as the memory of a batch.
std::shared_ptr<std::byte> bytes_of(std::shared_ptr<memory::Region> block);
/// Such memory of no pool.
std::shared_ptr<std::byte> host_block(uint64_t bytes);

}  // namespace gear::deliver

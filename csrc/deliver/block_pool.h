#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/threads/origin.h"
#include "memory/region.h"

namespace gear::deliver {

/// Blocks of one size, reused: a block returns here when the last tensor that views it is gone, so
/// that steady state allocates nothing and a consumer may keep a batch for as long as it likes.
///
/// `Block` is a memory::Region, or what a GPU's streams read, which has `bool release() noexcept`:
/// whether it may be used again. Of a host's idle blocks the newest is used next, which lies in its
/// caches; of a GPU's the oldest, which the streams that read it have most likely left.
///
/// A block that comes back in a forked child is left as it is. Made by base::make_shared_here().
template <class Block>
class BlockPool : public std::enable_shared_from_this<BlockPool<Block>> {
 public:
  /// Keeps at most `max_idle` blocks that nobody uses. `make` makes one more, in the thread that
  /// asks for it, and throws OutOfMemory.
  BlockPool(size_t max_idle, std::function<std::unique_ptr<Block>()> make)
      : max_idle_(max_idle), make_(std::move(make)) {}

  std::shared_ptr<Block> acquire() {
    std::unique_ptr<Block> block;
    {
      const std::lock_guard guard(mutex_);
      if (!idle_.empty()) {
        const auto chosen = kReadByStreams ? idle_.begin() : idle_.end() - 1;
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
  static constexpr bool kReadByStreams = requires(Block& block) { block.release(); };

  void release(std::unique_ptr<Block> block) noexcept {
    if (origin_.forked()) {
      static_cast<void>(block.release());
      return;
    }
    bool reusable = true;
    if constexpr (kReadByStreams) {
      reusable = block->release();
    }
    const std::lock_guard guard(mutex_);
    if (!reusable) {
      retired_.push_back(std::move(block));
    } else if (idle_.size() < max_idle_) {
      idle_.push_back(std::move(block));
    }
  }

  base::Origin origin_;
  size_t max_idle_;
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

#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collect/window.h"
#include "memory/region.h"
#include "store/schema.h"

namespace gear::collect {

// Where the tensors of a batch lie in its block of memory. B = batch_size, L = length() of an
// output; every tensor begins at a multiple of 64 bytes.
//
//   ids i64 [B] | probabilities f32 [B] | weights f32 [B] | per window: lengths, mask or cu_seqlens
//   | per output: data
struct BatchLayout {
  // Outputs that cover the same steps whatever the anchor, and so share lengths, mask and plan: the
  // same window that does not reach past the anchor, or of the same column (only some columns may
  // have a closing step).
  struct SharedWindow {
    Output window;
    std::vector<size_t> outputs;
    uint64_t lengths = 0;     // i32 [B]: steps there are
    uint64_t mask = 0;        // bool [B, L], padded only
    uint64_t cu_seqlens = 0;  // i32 [B + 1], packed only: row of each item's first step
  };

  BatchLayout(const store::Schema& schema, std::vector<Output> batch_outputs, uint64_t size,
              bool pack);

  std::vector<Output> outputs;
  std::vector<uint64_t> data;     // by output: [B, L, shape], packed: [sum of lengths, shape]
  std::vector<size_t> window_of;  // by output: its place in windows
  std::vector<SharedWindow> windows;
  uint64_t batch_size;
  bool packed;
  uint64_t ids = 0;
  uint64_t probabilities = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;
};

// Blocks of one size, reused: a block returns here when the last tensor that views it is gone, so
// that steady state allocates nothing and a consumer may keep a batch for as long as it likes.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  // Keeps at most `max_idle` blocks that nobody uses.
  BlockPool(uint64_t block_bytes, size_t max_idle) : bytes_(block_bytes), max_idle_(max_idle) {}

  std::shared_ptr<std::byte> acquire();

 private:
  void release(std::unique_ptr<memory::Region> block) noexcept;

  uint64_t bytes_;
  size_t max_idle_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<memory::Region>> idle_;
};

// One delivered batch: memory, its layout, and how much of it is filled.
struct Batch {
  std::shared_ptr<std::byte> block;
  std::shared_ptr<const BatchLayout> layout;
  uint64_t items = 0;          // at most layout->batch_size
  std::vector<uint64_t> rows;  // by window: rows of data filled
  uint64_t bytes = 0;          // copied from the store

  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(block.get() + offset);
  }
};

}  // namespace gear::collect

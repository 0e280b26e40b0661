#pragma once

#include <span>
#include <string>
#include <vector>

#include "store/shard.h"

namespace gear::store {

/// The index section of a shard file (docs/format.md): everything but the pages' bytes.
struct SavedIndex {
  std::string schema_text;
  uint64_t page_steps = 0;
  uint64_t num_pages = 0;
  Evict evict = Evict::kFifo;
  uint32_t max_times_sampled = 0;
  RateLimiter rate_limiter;
  SavedState index;
  std::vector<uint32_t> used_pages;  // in the order in which the pages section holds them

  IndexOptions options(uint32_t owner) const {
    return {num_pages, page_steps, owner, evict, max_times_sampled};
  }
};

/// Under the shard's lock.
std::vector<std::byte> encode_index(Shard& shard);

/// Throws CorruptData for bytes that are no index, or one that check_saved() refuses. Cost: memory
/// in proportion to `bytes`.
SavedIndex decode_index(std::span<const std::byte> bytes);

}  // namespace gear::store

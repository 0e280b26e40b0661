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
  IndexState state;
  std::vector<uint32_t> used_pages;  ///< in the order in which the pages section holds them
};

/// Under the shard's lock.
std::vector<std::byte> encode_index(Shard& shard);

/// Throws CorruptData for bytes that are no index. That the index agrees with itself is checked by
/// Index's constructor.
SavedIndex decode_index(std::span<const std::byte> bytes);

/// The used pages in saving order: episodes in creation order, their pages in time order.
std::vector<uint32_t> used_pages(const IndexState& state);

}  // namespace gear::store

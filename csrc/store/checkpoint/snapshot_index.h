#pragma once

#include <span>
#include <string>
#include <vector>

#include "store/shard.h"

namespace gear::store {

/// A new priority of a step, or weight of an episode, of which its owner has yet to hear.
struct KeptUpdate {
  int64_t id;
  float priority;
  uint32_t zero = 0;  ///< no indeterminate bytes on the wire
};

/// The index section of a shard file (docs/format.md): everything but the pages' bytes.
struct SavedIndex {
  std::string schema_text;
  IndexOptions options;  ///< but the owner, which is not saved
  RateLimiter rate_limiter;
  IndexState state;
  Slots slots;  ///< of the pages in use
  /// What the rank had yet to tell the others, of whose steps some are; none of it is applied.
  std::vector<KeptUpdate> kept_updates;
};

/// The oldest format that holds all that there is: 1; with kept updates 2; 3 where pages were
/// filled in another order than they are saved in; 4 where an episode once had a larger weight of
/// its own than any that is stored.
uint32_t format_of(const IndexState& state, std::span<const KeptUpdate> kept);

/// Under the shard's lock; `kept` what this rank has yet to tell the others.
std::vector<std::byte> encode_index(Shard& shard, std::span<const KeptUpdate> kept = {});

/// Throws CorruptData for bytes that are no index, or one that check_saved() refuses. Cost: memory
/// in proportion to `bytes`.
SavedIndex decode_index(std::span<const std::byte> bytes);

}  // namespace gear::store

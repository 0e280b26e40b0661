#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/checkpoint/snapshot_index.h"

namespace gear::store {

/// What one rank takes over of shards that another number of ranks saved: an index of its own, and
/// where its pages come from.
struct Share {
  /// A page of a saved shard: the `nth` of those that its file holds.
  struct Origin {
    uint32_t part;
    uint64_t nth;
  };

  SavedIndex saved;
  std::vector<Origin> origins;  ///< of the pages in use, one each, in saving order
};

/// Applies what each of `parts`, in their order, had yet to tell the others, as Index::update()
/// does on the ranks that saved. Throws CorruptData for ids that are not of these parts.
void apply_kept_updates(std::span<SavedIndex> parts);

/// The share of rank `rank` of `size`; the shares of all ranks hold every step of `parts`, each
/// once, with its priority, its number in the episode and how often it was drawn.
//
/// An episode stays whole. The pages keep the order in which they lie, part after part, and each
/// rank takes a run of them that is about as long as any other's: draws go by that order, so they
/// are those of before wherever the episodes lie each in one piece. Only an open episode comes to
/// rank (its part) modulo `size`. Episodes are numbered from 1 on over all ranks, in the order of
/// their former numbers and, where these are equal, of their parts.
//
/// A rank has room for its part of the steps that all of `parts` had room for, or for what it takes
/// over if that is more. Counts that belong to no step are split so that their sums stay.
/// Throws CorruptData where `parts` are not parts of one buffer. Cost: O(steps stored).
Share share_of(std::span<const SavedIndex> parts, uint32_t rank, uint32_t size);

}  // namespace gear::store

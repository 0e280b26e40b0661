#pragma once

#include <cstdint>
#include <vector>

#include "plan/batch.h"

namespace gear::group {

/// Slots of all ranks' pages in 32 bits: the owner's rank above the slot.
struct OwnedSlots {
  uint32_t slot_bits = 32;

  /// As many bits as `num_slots` slots and one more value need; whether the ranks' fit above them.
  static bool fit(uint32_t ranks, uint64_t num_slots);
  static OwnedSlots of(uint32_t ranks);
};

/// Where the parcels of a batch lie, which its owners write from GPU to GPU: every item's id,
/// probability, what there is of its windows, and the rows that it consists of, in memory of the
/// GPU whose batch receives it.
///
///   owner:     draws of DeviceShares ── find: slots, probabilities ── write ──┐   (ParcelSender)
///   consumer:                              inbox: by place in the batch  ◄────┘
///                 (a meeting) ── open: the block's header, weights,              (ParcelOpener)
///                                derived outputs ── rows()
///
/// Of a batch of B items, at multiples of 256 bytes: ids i64 [B], probabilities f32 [B]; by window:
/// pieces u32 [B, 2], standings u64 [B] where outputs derive from it, rows u32 [B * length].
///
/// There are kInboxes of them, which batches take in turn: a rank writes into one again only when
/// it has met the others after the gather that read it.
struct ParcelInbox {
  static constexpr uint64_t kInboxes = 3;

  /// By window: where these begin in an inbox.
  struct Window {
    uint64_t pieces;
    uint64_t standings;
    uint64_t rows;
  };

  /// Of batches that are not packed.
  explicit ParcelInbox(const plan::BatchLayout& layout);

  /// Of a rank's inboxes.
  uint64_t all_bytes() const { return kInboxes * bytes; }
  /// Of the inbox of that batch, among a rank's.
  uint64_t begin(uint64_t number) const { return number % kInboxes * bytes; }

  uint64_t ids = 0;
  uint64_t probabilities = 0;
  std::vector<Window> windows;
  uint64_t bytes = 0;  ///< of one
};

}  // namespace gear::group

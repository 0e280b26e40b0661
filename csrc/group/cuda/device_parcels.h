#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "group/cuda/device_shares.h"
#include "plan/batch.h"
#include "plan/cuda/device_plan.h"
#include "select/cuda/device_select.h"
#include "store/mirror/device_view.h"

namespace gear::group {

/// Slots of all ranks' pages in 32 bits: the owner's rank above the slot.
struct OwnedSlots {
  uint32_t slot_bits = 32;

  /// As many bits as `num_slots` slots and one more value need; whether the ranks' fit above them.
  static bool fit(uint32_t ranks, uint64_t num_slots);
  static OwnedSlots of(uint32_t ranks);
};

/// What owners tell consumers of a batch, from GPU to GPU: every item's id, probability, what there
/// is of its windows, and the rows that it consists of, written by the kernel of the GPU that holds
/// the item into the inbox of the GPU whose batch receives it.
///
///   owner:     draws of DeviceShares ── find: slots, probabilities ── write ──┐   (find, write)
///   consumer:                              inbox: by place in the batch  ◄────┘
///                 (a meeting) ── open: the block's header, weights, derived outputs ── rows()
///
/// Of a batch of B items, at multiples of 256 bytes: ids i64 [B], probabilities f32 [B]; by window:
/// pieces u32 [B, 2], standings u64 [B] where outputs derive from it, rows u32 [B * length].
///
/// There are kInboxes of them, which batches take in turn: a rank writes into one again only when
/// it has met the others after the gather that read it.
class DeviceParcels {
 public:
  static constexpr uint64_t kInboxes = 3;
  /// Of a rank's inboxes.
  static uint64_t bytes(const plan::BatchLayout& layout);
  /// `inboxes`: by rank, as kernels of `device` reach them, of bytes(layout); zeroed. Batches are
  /// not packed. Throws OutOfMemory: 8 bytes a draw of all ranks.
  DeviceParcels(std::shared_ptr<const plan::BatchLayout> layout, const store::PageLayout& pages,
                uint32_t rank, Locality locality, std::span<std::byte* const> inboxes, int device);

  /// Where draws are looked up.
  struct Find {
    store::DeviceTree tree;
    bool by_page;  ///< the tree counts what a page offers, else it weighs slots
    store::Unit unit;
  };
  /// Enqueues the owner's part of a batch: finds the items of this rank's draws and writes them to
  /// their consumers.
  void write(uint64_t number, const Find& find, const store::DeviceView& view,
             const OfferedTotals& totals, const DeviceShare& share, cudaStream_t stream);

  /// Enqueues the consumer's part, which comes to the meeting first: fills the block's header.
  /// `heard`: what is said there; null: no importance weights, all are 1.
  void open(uint64_t number, const Meeting& meeting, const Said* heard, double beta,
            std::byte* block, cudaStream_t stream);

  /// Of the batch of that number, in this rank's inbox: see OwnedSlots.
  std::vector<plan::RowList> rows(uint64_t number) const;

 private:
  struct Window {
    uint64_t pieces;
    uint64_t standings;
    uint64_t rows;
  };
  struct Places {
    explicit Places(const plan::BatchLayout& layout);
    uint64_t ids = 0;
    uint64_t probabilities = 0;
    std::vector<Window> windows;
    uint64_t bytes = 0;
  };

  uint64_t begin(uint64_t number) const { return number % kInboxes * places_.bytes; }

  std::shared_ptr<const plan::BatchLayout> layout_;
  uint64_t page_steps_;
  uint32_t rank_;
  uint32_t size_;
  Locality locality_;
  int device_;
  Places places_;
  std::byte* inboxes_[kMostGpuRanks] = {};
  base::DeviceArray<uint32_t> slots_;
  base::DeviceArray<float> probabilities_;
};

}  // namespace gear::group

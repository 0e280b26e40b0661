#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cuda/cuda.h"
#include "plan/batch.h"
#include "store/mirror/device_view.h"
#include "store/page_layout.h"

namespace gear::plan {

/// Rows of one window that a kernel moves, in memory that the GPU reads: entry i goes from slots[i]
/// (kNone: zeros) to row targets[i], or row i where targets is null.
struct RowList {
  const uint32_t* slots = nullptr;
  const uint32_t* targets = nullptr;
  uint32_t count = 0;
  const int32_t* filled = nullptr;  ///< how many of them count, where the GPU alone knows that
};

/// Of one window of a planned batch.
struct PlanTotals {
  uint64_t rows;   ///< delivered
  uint64_t steps;  ///< of those, how many exist: the others are padding
};

/// Anchors in device memory turned into rows, by the arithmetic of make_plan.
///
///   slots() u32 [items] ──launch──► block: ids, lengths, masks or cu_seqlens, derived
///                                   rows(): u32 [items * length] a window
///
/// Owns its memory, made once for a loader: 4 bytes a planned row of each window. One stream:
/// what launch() wrote is read by what follows on the same stream, and overwritten by the next.
class DevicePlan {
 public:
  /// Keeps the rows of up to `most_batches` batches, one behind the other. Throws OutOfMemory.
  /// num_slots (pages times page_steps) must be below 2^32.
  DevicePlan(std::shared_ptr<const BatchLayout> layout, const store::PageLayout& pages,
             uint64_t num_slots, int device, uint64_t most_batches = 1);

  /// Anchors, one an item: for the sampler or a copy to fill in before launch().
  uint32_t* slots() const { return slots_.get(); }

  /// Plans `items` <= batch_size anchors into `block`, a batch block in device memory. `unit` marks
  /// the ids. `totals`, by window: memory that the device can write (mapped host memory, say),
  /// valid when the stream has passed; null: not wanted. One launch, two when packed. May be
  /// captured into a graph. The rows go behind those of `first_item` items that are there already.
  /// `named`: whoever wrote the anchors wrote the block's ids, and what there is to say of
  /// anchors_window(); without totals, and of one batch.
  void launch(const store::DeviceView& view, store::Unit unit, uint64_t items, std::byte* block,
              PlanTotals* totals, cudaStream_t stream, uint64_t first_item = 0, bool named = false);

  /// Of a padded batch, the window of the anchor alone, if there is one: its rows are the anchors.
  std::optional<size_t> anchors_window() const { return anchors_window_; }

  /// By window of the layout: of all that the last launch and those before it in its row planned,
  /// items * length rows; of a packed batch only the first cu_seqlens[items] count, and the rest
  /// are kNone.
  const std::vector<RowList>& rows() const { return rows_; }

 private:
  std::shared_ptr<const BatchLayout> layout_;
  uint64_t page_steps_;
  uint64_t most_items_;
  base::DeviceArray<uint32_t> slots_;
  base::DeviceArray<uint32_t> row_slots_;  ///< window after window
  base::DeviceArray<uint32_t> sums_;       ///< packed: steps of each block's items, by window
  base::DeviceArray<uint64_t> progress_;   ///< by window: steps so far, blocks done
  std::vector<uint32_t*> row_slots_of_;    ///< by window
  std::vector<RowList> rows_;
  std::optional<size_t> anchors_window_;
};

}  // namespace gear::plan

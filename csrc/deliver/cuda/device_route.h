#pragma once

#include <memory>
#include <vector>

#include "base/cuda/cuda.h"
#include "deliver/cuda/joint_gather.h"
#include "gather/cuda/row_gather.h"
#include "plan/cuda/device_plan.h"
#include "store/mirror/cuda/device_index.h"
#include "store/shard.h"

namespace gear::deliver {

/// The way from anchors in a GPU's memory to a batch there: plan, address order where it pays, and
/// gather, on the stream of the shard's mirror on that GPU. The pages may lie in its own memory, in
/// another GPU's or in pinned host memory: the kernels are the same.
///
/// Every call under the shard's lock, so that the stream sees index, rows and batches in one order.
class DeviceRoute {
 public:
  /// `group`: rows are gathered in the order of their addresses, those of so many batches together;
  /// 0: in the order of delivery. `device` is the current GPU. Throws InvalidArgument where it
  /// cannot read the pages, OutOfMemory.
  DeviceRoute(store::Shard& shard, std::shared_ptr<const plan::BatchLayout> layout, int device,
              size_t group);
  /// Waits for the work in flight.
  ~DeviceRoute();
  DeviceRoute(const DeviceRoute&) = delete;
  DeviceRoute& operator=(const DeviceRoute&) = delete;

  store::DeviceIndex& mirror() const { return mirror_; }
  const base::Stream& stream() const { return mirror_.stream(); }
  /// Whether the pages lie in this GPU's own memory.
  bool local() const { return home_ == &mirror_; }

  /// Brings the mirror, and the rows that it stands for, up to date with the index.
  void sync();
  /// Where the anchors go before launch().
  uint32_t* slots() const { return plan_.slots(); }
  /// Whether batches go to group(), by add(), in place of launch() and hold_pages().
  bool grouped() const { return group_ != nullptr; }
  GatherGroup& group() const { return *group_; }
  GatherGroup::Place add(store::Unit unit, uint64_t items, std::shared_ptr<DeviceBlock> block,
                         plan::PlanTotals* totals);
  /// Plans and gathers `items` anchors into `block`, in memory of this GPU. May be captured where
  /// local().
  void launch(store::Unit unit, uint64_t items, std::byte* block, plan::PlanTotals* totals);
  /// After launch(): keeps the pages that were read from being written until they have been.
  void hold_pages();

 private:
  class GatherEnd;

  store::Shard& shard_;
  store::DeviceIndex& mirror_;
  store::DeviceIndex* home_;  ///< mirror on the GPU that holds the pages; null: host memory
  plan::DevicePlan plan_;
  gather::RowGather gather_;
  const std::byte* pages_;
  uint32_t most_blocks_;  // of a gather
  std::unique_ptr<GatherGroup> group_;
  base::Event rows_written_;  ///< of another GPU's pages
  base::Event rows_read_;
  std::vector<std::shared_ptr<GatherEnd>> ends_;  ///< of host pages; kept for their events
};

}  // namespace gear::deliver

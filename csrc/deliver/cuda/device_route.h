#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cuda/cuda.h"
#include "deliver/cuda/batch_graphs.h"
#include "deliver/cuda/device_block.h"
#include "deliver/cuda/joint_gather.h"
#include "gather/cuda/row_gather.h"
#include "plan/cuda/device_plan.h"
#include "select/cuda/device_sampler.h"
#include "store/mirror/cuda/event_end.h"
#include "store/mirror/cuda/shard_mirror.h"
#include "store/shard.h"

namespace gear::deliver {

/// The way from anchors in a GPU's memory to a batch: plan, address order where it pays, and
/// gather, on the stream of the shard's mirror on that GPU. The pages may lie in its own memory, in
/// another GPU's or in pinned host memory: the kernels are the same.
///
/// Every call but the constructor, which takes it, under the shard's lock, so that the stream sees
/// index, rows and batches in one order.
class DeviceRoute {
 public:
  struct Options {
    /// Rows are gathered in the order of their addresses, those of so many batches together; 0: in
    /// the order of delivery.
    size_t joint = 0;
    /// Of so many blocks the launches are captured and replayed where they may be.
    size_t graphs = 0;
    /// Blocks are of host memory: batches are gathered in this GPU's and copied from there.
    bool to_host = false;
  };

  /// A batch to fill a block with.
  struct Filling {
    store::Unit unit;
    uint64_t items;
    std::shared_ptr<DeviceBlock> block;
    plan::PlanTotals* totals;  ///< by window, pinned: where packed, what the batch holds
    bool repeats;              ///< what is launched is the same each time for a block
    bool timed;                ///< its time on the GPU is wanted; that of a joint pass always is
    bool named;                ///< who selects writes all that a DeviceDraw asks for
  };

  /// A block that is being filled:
  ///
  ///     DeviceRoute::Fill fill = route.begin(filling);
  ///     if (!fill.replayed()) {
  ///       ...                          // on stream(): puts the anchors where fill.draw() says
  ///       route.plan_and_gather(fill);
  ///     }
  ///     Filled filled = fill.end();
  ///
  /// Between the two, launches are captured where they will be replayed; where it goes without
  /// end(), what was captured comes to nothing, and the block is not filled.
  class Fill {
   public:
    Fill(const Fill&) = delete;
    Fill& operator=(const Fill&) = delete;

    /// Whether end() replays what was launched for this block before.
    bool replayed() const { return launches_ && launches_->replayed(); }
    const select::DeviceDraw& draw() const { return draw_; }
    Filled end();

   private:
    friend class DeviceRoute;
    Fill(DeviceRoute& route, const Filling& filling);

    DeviceRoute& route_;
    Filling filling_;
    std::byte* target_;  ///< where the batch is gathered in the route's GPU's memory
    select::DeviceDraw draw_;
    std::optional<BatchGraphs::Use> launches_;  ///< of a block whose launches may be replayed
    Filled joint_;                              ///< of batches that are gathered together
  };

  /// `device` is the current GPU. Throws InvalidArgument where it cannot read the pages,
  /// OutOfMemory.
  DeviceRoute(store::Shard& shard, std::shared_ptr<const plan::BatchLayout> layout, int device,
              const Options& options);
  /// Waits for the work in flight.
  ~DeviceRoute();
  DeviceRoute(const DeviceRoute&) = delete;
  DeviceRoute& operator=(const DeviceRoute&) = delete;

  store::DeviceIndex& mirror() const { return *mirror_; }
  const base::Stream& stream() const { return mirror_->stream(); }
  /// Waits for what was put on it; never throws.
  void drain() noexcept { store::drain(shard_, *mirror_); }

  /// Brings the mirror, and the rows that it stands for, up to date with the index.
  void sync();
  /// Begins to fill a block, behind those who read it.
  Fill begin(const Filling& filling);
  /// Enqueues that the anchors of a fill are planned and gathered. Batches that are gathered
  /// together are so when there are enough, or by end->hurry().
  void plan_and_gather(Fill& fill);
  /// Rethrows what failed where batches are gathered together: no block filled since the last
  /// drop() is whole. Without the lock too.
  void raise_failed() const;
  /// Nobody will look at what is gathered together; forgets what failed.
  void drop();

 private:
  std::shared_ptr<const store::ReadEnd> end_of_reads();

  /// Whether the pages lie in this GPU's own memory.
  bool local() const { return rows_ != nullptr && &rows_->stream() == &mirror_->stream(); }

  store::Shard& shard_;
  std::shared_ptr<store::DeviceIndex> mirror_;
  store::RowSink* const rows_;  ///< of the GPU that holds the pages; null: the host
  std::shared_ptr<const plan::BatchLayout> layout_;
  plan::DevicePlan plan_;
  gather::RowGather gather_;
  const std::byte* pages_;
  uint32_t most_blocks_;  ///< of a gather
  std::unique_ptr<JointGather> joint_;
  base::DeviceArray<std::byte> staging_;  ///< a block on its way to host memory
  BatchGraphs graphs_;
  base::Event rows_written_;  ///< of another GPU's pages
  base::Event rows_read_;
  std::vector<std::shared_ptr<store::EventEnd>> ends_;  ///< of host pages; kept for their events
};

}  // namespace gear::deliver

#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "deliver/cuda/device_block.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "plan/cuda/device_plan.h"
#include "store/shard.h"

namespace gear::deliver {

/// How a block is filled.
struct Filled {
  /// When its pages are read no more; null where the stream orders what writes them behind it.
  std::shared_ptr<const store::ReadEnd> end;
  /// Batches that the time of the block's fill stands for; 0: none, or others too.
  uint64_t timed_batches = 1;
};

/// Batches that are planned one by one, each in its own call, and gathered together in the order of
/// their addresses: what bounds such a gather is not how many rows it reads but how many parts of
/// the host's memory it visits, and together they visit each part once.
///
///   add 0 | add 1 ── gather 0, 1 | add 2 | add 3 ── gather 2, 3 | ...          (passes of two)
///
/// A pass is gathered when it is full, when a batch of it is needed, or when a writer waits for a
/// page that it reads, in whichever thread that is: by ReadEnd::hurry().
///
/// What fails in a pass is kept: until drop(), every call throws it, so that no block is taken for
/// filled that holds the rows of an earlier fill.
class JointGather {
 public:
  /// Passes of at most `most` batches (gather::kMostGatherBlocks). Launches go to `stream`.
  JointGather(const std::byte* pages_on_device, std::shared_ptr<const plan::BatchLayout> layout,
              const store::PageLayout& pages, uint64_t num_pages, size_t most, int device,
              cudaStream_t stream);
  /// Drops what is not gathered.
  ~JointGather();
  JointGather(const JointGather&) = delete;
  JointGather& operator=(const JointGather&) = delete;

  /// Plans a batch, whose anchors are in plan.slots(), into `block`, whose fill has begun, and adds
  /// it. The `end` is that of the pass; timed_batches those that this call gathered, 0 where the
  /// pass stays open.
  Filled add(plan::DevicePlan& plan, const store::DeviceView& view, store::Unit unit,
             uint64_t items, std::shared_ptr<DeviceBlock> block, plan::PlanTotals* totals);
  /// Throws what failed since the last drop(). From any thread.
  void raise_failed() const;
  /// Ends the fill of the open pass's blocks without a gather, and forgets what failed.
  void drop();

 private:
  class End;
  struct Access;  ///< of writers' threads to this object, for as long as it is there

  void gather_open();
  void close(bool gathered);

  std::shared_ptr<const plan::BatchLayout> layout_;
  gather::AddressOrder order_;
  gather::RowGather gather_;
  const std::byte* pages_;
  size_t most_;
  int device_;
  cudaStream_t stream_;
  std::shared_ptr<Access> access_;
  /// Under access_->mutex, which is never held when the shard is called.
  const plan::DevicePlan* plan_ = nullptr;
  uint64_t pass_ = 0;  ///< number of the open one
  uint64_t items_ = 0;
  std::vector<std::shared_ptr<DeviceBlock>> blocks_;
  std::shared_ptr<End> end_;
  std::vector<std::shared_ptr<End>> ends_;  ///< kept for their events
  std::exception_ptr error_;
};

}  // namespace gear::deliver

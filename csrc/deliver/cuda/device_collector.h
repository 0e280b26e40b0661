#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "deliver/batch_source.h"
#include "deliver/cuda/batch_graphs.h"
#include "deliver/cuda/device_block.h"
#include "deliver/cuda/device_route.h"
#include "gather/cuda/anchor_upload.h"
#include "select/cuda/device_select.h"

namespace gear::deliver {

/// Delivers batches that a GPU gathers: select, plan and gather on the stream of the shard's mirror
/// there, in the order of the calls.
///
///   caller's thread    next(): enqueue batch k + prefetch, under the lock ... deliver batch k
///   mirror's stream    sync | select | plan | gather k + 1 | ... k + 2 | ...
///   consumer's stream  waits for the event of batch k, by Delivery
///
/// Rows of pinned memory that are gathered in address order are gathered for several batches
/// together: see GatherGroup and pass_size(). What is drawn when does not change.
///
/// The caller waits for the GPU only where it must know something that is made there: the rows of a
/// packed batch, and batches for the host.
/// Selection is the GPU's where the policy has a form there, else the host's, whose anchors are
/// sent.
class DeviceCollector final : public BatchSource {
 public:
  /// Tiers kPinned (options.path kZeroCopy) and kDevice. options.device -1: gathered by the GPU
  /// that holds the pages, and copied to pinned host memory. Throws InvalidArgument as
  /// check_outputs and make_sampler do; OutOfMemory; CudaError.
  DeviceCollector(std::shared_ptr<store::Shard> shard, CollectorOptions options);
  /// Waits for the work in flight.
  ~DeviceCollector() override;

  Next next(std::optional<double> timeout_s, plan::Batch& out) override;
  void set_beta(double beta) override;
  uint64_t batches_per_epoch() override;
  State state() override;
  void restore(const State& state) override;
  Stats stats() override;

 private:
  struct Job {
    plan::Batch batch;
    std::shared_ptr<DeviceBlock> block;          ///< the batch's
    base::PinnedArray<plan::PlanTotals> totals;  ///< packed: by window
    std::optional<uint64_t> group;               ///< in which it is gathered
    uint64_t timed_batches = 1;                  ///< that the time of its block's fill stands for
    bool resolved = false;
    bool restored = false;
    bool epoch_end = false;
    std::exception_ptr error;
  };

  /// Enqueues one batch, the end of an epoch or an error; false when not allowed within timeout_s.
  bool issue(std::optional<double> timeout_s);
  std::unique_ptr<Job> idle_job();
  /// Accounts for the next selection: how many items it holds. The host's is made, the GPU's is
  /// not.
  uint64_t select();
  void enqueue(Job& job, uint64_t items);
  void launch(Job& job, uint64_t items);
  /// Sees to it that the job's batch is being gathered.
  void begin(const Job& job);
  /// Fills in what of the batch the host knows only when the GPU has made it.
  void resolve(Job& job);
  void count(const Job& job);
  /// Now and then, the time that the last fill of a block took.
  void look_at_time(const DeviceBlock& block);
  void drop_pending();

  std::shared_ptr<store::Shard> shard_;
  CollectorOptions options_;
  int device_;  ///< that gathers
  std::shared_ptr<const plan::BatchLayout> layout_;
  std::shared_ptr<DeviceBlockPool> blocks_;
  base::DeviceArray<std::byte> staging_;  ///< a block on its way to host memory
  std::optional<DeviceRoute> route_;
  std::unique_ptr<select::DeviceSampler> device_sampler_;  ///< one of these two
  std::unique_ptr<select::Sampler> host_sampler_;
  select::Selection selection_;                 ///< of the host's
  std::optional<gather::AnchorUpload> upload_;  ///< likewise
  std::optional<BatchGraphs> graphs_;
  std::deque<std::unique_ptr<Job>> pending_;  ///< in delivery order
  std::vector<std::unique_ptr<Job>> idle_;
  Stats stats_;
  uint64_t enqueued_ = 0;     ///< into blocks that were filled before
  uint64_t timed_bytes_ = 0;  ///< of batches whose time on the GPU was looked at
  double timed_s_ = 0;
};

}  // namespace gear::deliver

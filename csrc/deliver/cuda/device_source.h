#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "deliver/cuda/device_block.h"
#include "deliver/cuda/device_route.h"
#include "deliver/source.h"
#include "gather/cuda/anchor_upload.h"
#include "select/cuda/device_sampler.h"
#include "select/sampler.h"

namespace gear::deliver {

/// Batches that a GPU gathers: select, plan and gather on the stream of the shard's mirror there,
/// in the order of the calls.
///
///     caller's thread    draw: enqueue batch k + prefetch, under the lock ... finish batch k
///     mirror's stream    sync | select | plan | gather k + 1 | ... k + 2 | ...
///     consumer's stream  waits for the event of batch k, by Delivery
///
/// Rows of pinned memory that are gathered in address order are gathered for several batches
/// together: see JointGather and LinkModel::pass_size. What is drawn when does not change.
///
/// The caller waits for the GPU only where it must know something that is made there: the rows of a
/// packed batch, and batches for the host.
/// Selection is the GPU's where the policy has a form there, else the host's, whose anchors are
/// sent.
class DeviceSource final : public Source {
 public:
  /// Tiers kPinned (options.path kZeroCopy) and kDevice. options.device -1: gathered by the GPU
  /// that holds the pages, and copied to pinned host memory.
  /// Throws InvalidArgument as select::Sampler does; OutOfMemory; CudaError.
  DeviceSource(std::shared_ptr<store::Shard> shard, Request request);
  /// Waits for the work in flight.
  ~DeviceSource() override;

  std::unique_ptr<Job> make_job() override;
  bool draw(Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(Job& job) override;
  void count(Job& job) override;
  void fill(Job& job, std::span<const std::byte> bytes) override;
  void drop() override;
  select::Law& law() override;
  void report(Stats& stats) override;

 private:
  struct Fill : Job {
    base::PinnedArray<plan::PlanTotals> totals;  ///< packed: by window
    Filled filled;
    bool resolved = true;  ///< rows and bytes of the batch are known
  };

  /// Accounts for the next selection: how many items it holds. The host's is made, the GPU's is
  /// not.
  uint64_t select();
  void launch_select(uint64_t items, const select::DeviceDraw& draw);
  /// After a draw whose launches failed: on the host and on the GPU it was not made.
  void draw_again_from(const select::SamplerPosition& position) noexcept;
  void gather(Fill& job, std::shared_ptr<DeviceBlock> block, uint64_t items);
  /// The time that the last fill of a block took, where it was timed.
  void look_at_time(const DeviceBlock& block);

  std::shared_ptr<store::Shard> shard_;
  LoaderOptions options_;
  int device_;  ///< that gathers
  std::shared_ptr<DeviceBlockPool> blocks_;
  std::optional<DeviceRoute> route_;
  std::unique_ptr<select::DeviceSampler> device_sampler_;  ///< one of these two
  std::optional<select::Sampler> host_sampler_;
  const store::SumTree* offered_ = nullptr;     ///< that one's
  bool looks_ = false;                          ///< at priorities of the index, when it draws
  select::Selection selection_;                 ///< of the host's
  std::optional<gather::AnchorUpload> upload_;  ///< likewise
  uint64_t enqueued_ = 0;                       ///< batches
  std::mutex mutex_;                            ///< of what follows
  uint64_t timed_bytes_ = 0;                    ///< of batches whose time on the GPU was looked at
  double timed_s_ = 0;
};

}  // namespace gear::deliver

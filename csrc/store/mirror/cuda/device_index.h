#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/cuda/cuda.h"
#include "store/index/index.h"
#include "store/mirror/cuda/device_delta.h"
#include "store/mirror/cuda/device_drawable.h"
#include "store/mirror/cuda/device_tree.h"
#include "store/mirror/cuda/updates/device_update.h"
#include "store/mirror/device_view.h"
#include "store/mirror/mirror.h"

namespace gear::store {

/// The mirror, as CUDA code sees it.
///
/// Memory: 32 bytes a page and 32 an episode (room for one a page), 8.3 bytes a page for the tree
/// of heads; with priorities 8 bytes a step, and 8.3 a step for each tree of weights in use.
class DeviceIndex final : public Mirror {
 public:
  /// Starts with everything the index holds waiting for the first sync(). See make_mirror. Throws
  /// OutOfMemory.
  DeviceIndex(Index& index, int device, RowSink* rows);
  ~DeviceIndex() override;
  DeviceIndex(const DeviceIndex&) = delete;
  DeviceIndex& operator=(const DeviceIndex&) = delete;

  int device() const override { return stream_.device(); }
  void sync() override;
  bool has_room() const override {
    return deltas_.has_room() && (!updates_ || updates_->has_room());
  }
  /// Whether sync(), without an update behind it, would not wait for the GPU.
  bool can_sync() const { return deltas_.has_room(); }
  bool ahead() const override { return ahead_; }
  bool holds_priorities() const override { return view_.priorities != nullptr; }
  void update(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
              uintptr_t stream) override;
  void raise_failed_update() override;
  void settle() override;
  bool unsettled() const override { return ahead_ || has_news_; }
  void mark() override;
  bool reached() const override { return marked_.done(); }
  void settled_elsewhere() override;
  void start_over() override;
  DeviceIndex* device_index() noexcept override { return this; }

  /// All that is selected, planned and gathered from this mirror goes on this stream.
  const base::Stream& stream() const { return stream_; }
  /// The steps that laws of this look-ahead and mask may draw; for as long as the caller holds it.
  /// The first call copies a bit a step, and waits for the stream. Throws InvalidArgument for more
  /// than kMaxDrawables different ones at once.
  std::shared_ptr<const DeviceDrawable> steps(uint64_t lookahead,
                                              const std::shared_ptr<const Mask>& mask = nullptr);
  /// As of what was put on the stream so far.
  const DeviceView& view() const { return view_; }

  /// From here on the mirror holds priorities. The index's own must be up to date: Shard::settle()
  /// comes first. O(steps) the first time; throws OutOfMemory.
  void require_priorities();
  /// Fixed-point p^alpha by slot, of these steps. The first call for an alpha, and the first
  /// with_least, builds the tree in O(steps), and requires priorities; it is kept up to date for as
  /// long as a caller holds it. Throws InvalidArgument for more than kMaxWeightTrees different ones
  /// at once.
  std::shared_ptr<const DeviceWeights> weights(std::shared_ptr<const DeviceDrawable> steps,
                                               double alpha, bool with_least = false);

  /// Where the largest priority seen so far stands, as of what was put on the stream so far, for
  /// who hears of other ranks' and raises it there; priorities are held.
  float* largest_priority();

  /// As update(), of entries that were checked: see UpdateQueue::apply.
  void apply(const UpdateSegments& updates, const base::Stream& made_on);

 private:
  struct WeightTree {
    std::shared_ptr<const DeviceDrawable> steps;
    double alpha;
    TreeMemory memory;
    base::DeviceArray<WeightScale> scale;
    base::DeviceArray<uint64_t> least;  ///< once somebody asked for it
    DeviceWeights there;                ///< as kernels that draw see it
  };

  DeviceTables tables();
  /// The largest priority becomes that of the index where that is larger, and scales are made to
  /// fit it, which they do not yet where it was raised without an update.
  void follow();
  void drop_unused();
  void take_priorities();

  Index& index_;
  RowSink* const rows_;            // of this GPU, whose stream it is; null: none
  const base::Stream own_stream_;  // else
  const base::Stream& stream_;
  base::DeviceArray<Page> pages_;
  base::DeviceArray<DeviceEpisode> episodes_;
  base::DeviceArray<float> priorities_;
  base::DeviceArray<double> episode_weights_;
  base::DeviceArray<DeviceScalars> scalars_;
  TreeMemory heads_;
  std::vector<std::shared_ptr<DeviceDrawable>> drawables_;
  std::vector<std::shared_ptr<WeightTree>> weight_trees_;
  DeltaSender deltas_;
  std::optional<UpdateQueue> updates_;  // with priorities
  base::PinnedArray<float> settling_;   // two parts; made by the first settle()
  DeviceView view_;
  base::Event marked_;
  int largest_ = 0;  // see DeviceTables
  bool ahead_ = false;
  float told_ = 0;         // the index's largest priority, as it was sent
  bool has_news_ = false;  // of weights that saturated, of other ranks' priorities
};

}  // namespace gear::store

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "plan/batch.h"
#include "plan/path.h"
#include "plan/window.h"
#include "select/sampler.h"
#include "store/shard.h"

namespace gear::deliver {

struct CollectorOptions {
  std::vector<plan::Output> outputs;
  uint64_t batch_size = 0;
  bool packed = false;
  uint64_t prefetch = 2;  ///< batches in flight behind the one that is delivered
  select::SamplerOptions sampler;
  int device = -1;                      ///< GPU that the batches go to; -1: host memory
  plan::Path path = plan::Path::kAuto;  ///< kAuto, kZeroCopy or kStaged; tier kPinned to a GPU only
};

/// What a loader draws its batches from. An implementation decides where selection, plan and gather
/// run; that batch k is drawn during the call that delivers batch k - prefetch, in the caller's
/// sequence of appends, updates and next(), holds for all: so a run is reproducible, the same on
/// every device, and prefetching never makes it depend on timing.
/// One thread at a time may call a source.
class BatchSource {
 public:
  /// What next() ended with.
  enum class Next : uint8_t { kBatch, kEpochEnd, kTimedOut };

  /// Where the sequence of batches stands: the sampler's position and the batches drawn already but
  /// not delivered, with their data (they may show steps that have been evicted since). The same
  /// for every implementation.
  struct PendingBatch {
    bool epoch_end = false;
    uint64_t items = 0;
    std::vector<uint64_t> rows;
    std::vector<std::byte> data;
  };
  struct State {
    select::SamplerPosition position;
    std::vector<PendingBatch> pending;
  };

  struct Stats {
    uint64_t batches = 0;  ///< delivered
    uint64_t items = 0;
    uint64_t bytes = 0;   ///< copied out of the store
    double wait_s = 0;    ///< time next() waited for a gather or the rate limiter
    double gather_s = 0;  ///< time spent copying, by whoever copies
    double gb_per_s = 0;  ///< of the copying, 1e9 bytes a second; 0 before there was any
    plan::Path path = plan::Path::kHost;
    bool selects_on_device = false;
    memory::Tier tier = memory::Tier::kHost;  ///< where all items were found
    /// Over a group, bytes by where they came from, and those that came by message.
    uint64_t local_bytes = 0;
    uint64_t same_node_bytes = 0;
    uint64_t remote_bytes = 0;
    uint64_t message_bytes = 0;
  };

  virtual ~BatchSource() = default;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  /// The next batch. Waits up to timeout_s until the rate limiter allows it and something may be
  /// drawn; without a rate limiter, throws InvalidArgument when there is nothing to draw.
  virtual Next next(std::optional<double> timeout_s, plan::Batch& out) = 0;

  virtual void set_beta(double beta) = 0;
  virtual uint64_t batches_per_epoch() = 0;

  virtual State state() = 0;
  /// Continues from a state of a source with the same options, of whatever implementation; throws
  /// InvalidArgument when the options differ. Batches in flight are dropped.
  virtual void restore(const State& state) = 0;

  virtual Stats stats() = 0;

 protected:
  BatchSource() = default;
};

/// The implementation for the shard's tier, the device and the path. Throws InvalidArgument for
/// what does not go together, and as check_outputs and make_sampler do.
std::unique_ptr<BatchSource> make_batch_source(std::shared_ptr<store::Shard> shard,
                                               const CollectorOptions& options);

/// Delivers exactly the steps named, to host memory (device -1) or a GPU. Throws InvalidArgument
/// for an id that is not stored.
plan::Batch collect_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                        const std::vector<plan::Output>& outputs, bool packed, int device = -1);

/// ---- for implementations ----
/// Throws InvalidArgument when options.path does not lead from `tier` to options.device.
void check_path(const CollectorOptions& options, memory::Tier tier);
/// The bytes of a batch's block, wherever it lies; waits until it is filled.
std::vector<std::byte> copy_of(const plan::Batch& batch);
/// Throws InvalidArgument when a pending batch is not of this layout.
void check_pending(const BatchSource::State& state, const plan::BatchLayout& layout);
/// Waits up to timeout_s until a batch may be drawn; false when it may not. Throws InvalidArgument
/// where nothing is offered and no rate limiter says to wait for it, unless batches are `pending`
/// and no time is given.
bool wait_to_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock,
                  const CollectorOptions& options, std::optional<double> timeout_s, bool pending);

}  // namespace gear::deliver

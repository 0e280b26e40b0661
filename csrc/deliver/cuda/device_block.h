#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/cuda/cuda.h"
#include "deliver/block_pool.h"
#include "memory/region.h"
#include "plan/batch.h"

namespace gear::deliver {

/// Memory of one batch that a GPU fills, and the events between the streams that use it:
///
///   producer's stream   wait for released ── begin_fill ── kernels ── end_fill      (next batch)
///                             ▲                                           │
///   consumers' streams ───── released (recorded when the last tensor goes) ◄── make_wait
///
/// No thread waits for either. begin_fill and end_fill are the producer's; the rest is Delivery.
class DeviceBlock final : public plan::Delivery {
 public:
  /// In the memory of `device`, or in pinned host memory that `device` fills (tier kPinned).
  DeviceBlock(uint64_t bytes, memory::Tier tier, int device);
  /// Waits for whoever fills or reads it.
  ~DeviceBlock() override;

  /// As the consumer addresses it.
  std::byte* data() const { return region_->data(); }
  /// As kernels and copy engines do.
  std::byte* device_data() const { return region_->device_data(); }
  uint64_t bytes() const { return region_->bytes(); }

  /// `stream` waits for whoever read the block last; what it is given then fills the block.
  void begin_fill(cudaStream_t stream);
  void end_fill(cudaStream_t stream);
  bool filled() const { return filled_.done(); }
  /// After begin_fill, for a fill whose time will be asked for.
  void begin_timing(cudaStream_t stream);
  /// GPU time from begin_timing to end_fill, once filled().
  double fill_s() const { return ended_.ms_since(begun_) * 1e-3; }
  /// What the producer notes of a fill: bytes that it moved, 0 where its time means nothing.
  void note_bytes(uint64_t bytes) { noted_bytes_ = bytes; }
  uint64_t noted_bytes() const { return noted_bytes_; }
  /// Fills it with `bytes` from host memory; returns when that is done.
  void fill(std::span<const std::byte> bytes, cudaStream_t stream);

  int device() const noexcept override { return region_->device(); }
  void make_wait(uintptr_t stream) override;
  void wait() override;
  void read(std::span<std::byte> out) override;

  /// Nobody views the block any more: notes what its readers' streams were given up to here. False
  /// when that cannot be known (a stream that is being captured, a lost GPU): then the block must
  /// not be filled again.
  bool release() noexcept;

 private:
  struct Reader {
    cudaStream_t stream = nullptr;
    cudaStream_t released_on =
        nullptr;  ///< a stream that is there as long as the process, where possible
    base::Event released;
    bool reads = false;  ///< views of it were given out since the last fill
  };

  int fill_device_;
  std::unique_ptr<memory::Region> region_;
  base::Event filled_;
  base::Event begun_;  ///< these two, of the last fill that was timed
  base::Event ended_;
  bool timed_ = false;  ///< the fill that is under way
  uint64_t noted_bytes_ = 0;
  std::mutex mutex_;  ///< of readers_
  std::vector<Reader> readers_;
};

using DeviceBlockPool = BlockPool<DeviceBlock>;
/// Blocks that `device` fills; see DeviceBlock.
std::shared_ptr<DeviceBlockPool> make_device_blocks(uint64_t block_bytes, size_t max_idle,
                                                    memory::Tier tier, int device);

/// `block` as the memory of a batch.
void put_block(std::shared_ptr<DeviceBlock> block, plan::Batch& batch);

}  // namespace gear::deliver

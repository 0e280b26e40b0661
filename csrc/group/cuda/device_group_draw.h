#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "deliver/cuda/device_block.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "group/cuda/device_meeting.h"
#include "group/cuda/device_shares.h"
#include "group/cuda/parcel_opener.h"
#include "group/cuda/parcel_sender.h"
#include "group/cuda/peer_memory.h"
#include "group/cuda/update_exchange.h"
#include "group/group_loader.h"
#include "store/mirror/cuda/shard_mirror.h"

namespace gear::group {

/// What a batch of a group puts on the stream of this rank's mirror, in the caller's thread:
///
///   sync ─ weights: updates to their owners ─ meet ─ apply ─ meet (totals)
///        ─ look at all draws ─ find own ones, write them to consumers ─ meet
///        ─ open the inbox ─ gather, and mark that the pages are read
///
/// A large batch is gathered on a stream of its own, while the next one is drawn.
///
/// Every rank puts the same batches on its streams, in the same order. No call waits.
class DeviceGroupDraw {
 public:
  /// What a rank's host says to a batch.
  struct Offer {
    uint64_t total;  ///< items that may be drawn
    uint64_t kept;   ///< updates
  };
  /// What a batch notes for the host: see DeviceShare.
  struct Counts {
    uint32_t drawn[kMostGpuRanks];
    uint32_t received[kMostGpuRanks];
  };
  static_assert(sizeof(Counts) == SaidAt::kNoted * sizeof(uint32_t));

  /// Of the PeerMemory that it needs. `updates`: null for draws without weights.
  static uint64_t memory_bytes(const LoaderParts& parts, const UpdateExchange* updates);

  /// Under no lock. Throws CudaError, OutOfMemory.
  DeviceGroupDraw(const LoaderParts& parts, std::unique_ptr<PeerMemory> memory,
                  std::shared_ptr<UpdateExchange> updates);

  DeviceMeeting& meeting() { return meeting_; }
  /// Draws of a batch, of all ranks.
  uint64_t draws() const { return shares_.draws(); }
  /// The ranks that read this one's pages, but for what its stream orders.
  std::vector<uint32_t> readers() const;

  /// Whether sync() would not wait for the GPU. Under the shard's lock.
  bool can_sync() const;
  /// What the index has become since the last batch. Under the shard's lock, as launch().
  void sync();
  /// A batch that all ranks have agreed on.
  struct Turn {
    uint64_t number;                ///< of the batch
    uint64_t made;                  ///< draws of those before it
    double beta;                    ///< of importance weights
    std::span<const Offer> offers;  ///< by rank
    uint64_t* passed;               ///< see ReadBoard::passed_by_gpu
  };
  /// Enqueues it; returns the number of the meeting after which `block` may be delivered.
  uint64_t launch(const Turn& turn, deliver::DeviceBlock& block);
  /// Of one of the last prefetch + 4 batches, once its ranks have met.
  const Counts& counts(uint64_t number) const { return counts_[number % counts_.size()]; }

  /// The point in the mirror's work that it was given so far.
  base::Event point_now() const { return store::point_now(shard_, *mirror_); }
  /// Waits for all that was put on the streams; never throws.
  void drain() noexcept;
  /// Nothing of this rank writes into the others' memory any more.
  void close_peers() { memory_->close_peers(); }

 private:
  void exchange_updates(std::span<const Offer> offers);
  void gather(const Turn& turn, std::byte* block, const base::Stream& stream);

  std::shared_ptr<const plan::BatchLayout> layout_;
  store::Shard& shard_;
  int device_;
  bool weighted_;
  bool of_all_;  ///< importance weights need the least probability of all that may be drawn
  store::Unit unit_;
  uint32_t rank_;
  uint32_t size_;
  std::shared_ptr<store::DeviceIndex> mirror_;
  std::shared_ptr<const store::DeviceDrawable> steps_;   ///< null: episodes
  std::shared_ptr<const store::DeviceWeights> weights_;  ///< null: uniform
  std::shared_ptr<UpdateExchange> updates_;              ///< likewise; the buffer's
  std::unique_ptr<PeerMemory> memory_;
  DeviceMeeting meeting_;
  DeviceShares shares_;
  ParcelSender sender_;
  ParcelOpener opener_;
  bool ordered_;  ///< rows are gathered in the order of their addresses
  gather::RowGather gather_;
  gather::AddressOrder order_;
  uint32_t most_blocks_ = UINT32_MAX;
  std::optional<base::Stream> gathers_;  ///< of large batches; none: the mirror's
  base::Event opened_;
  base::Event gathered_[2];  ///< by number of the batch, modulo 2
  base::DeviceArray<unsigned> blocks_done_;
  std::vector<const std::byte*> pages_;  ///< by owner
  base::PinnedArray<Counts> counts_;     ///< by number of the batch, modulo its size
};

}  // namespace gear::group

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "deliver/cuda/device_block.h"
#include "gather/cuda/address_order.h"
#include "gather/cuda/row_gather.h"
#include "group/agreement.h"
#include "group/cuda/device_meeting.h"
#include "group/cuda/device_parcels.h"
#include "group/cuda/device_shares.h"
#include "group/cuda/peer_memory.h"
#include "group/cuda/update_exchange.h"
#include "group/group_loader.h"
#include "group/read_board.h"
#include "store/mirror/cuda/device_index.h"

namespace gear::group {

/// Batches that the GPUs of one node's ranks draw and gather together, from pages that each of them
/// reads by pointer. The hosts agree that a batch is drawn, with a few words each; the rest is put
/// on the stream of each shard's mirror, in the caller's thread:
///
///   sync ─ weights: updates to their owners ─ meet ─ apply ─ meet (totals)
///        ─ look at all draws ─ find own ones, write them to consumers ─ meet
///        ─ open the inbox ─ gather, and mark that the pages are read
///
/// A large batch is gathered on a stream of its own, while the next one is drawn.
///
/// Batch k may be delivered when its ranks have met: next() waits for that, which with prefetch > 0
/// lies prefetch batches back, and for no gather.
///
/// Every call is collective, in the same order on every rank.
class DeviceGroupSource final : public deliver::Source {
 public:
  /// Collective: null on all ranks alike where this form does not fit, and GroupSource's does:
  /// other laws than Uniform and Weighted of steps, packed batches, ranks of several nodes or more
  /// than kMostGpuRanks, a loader on another GPU than the pages. Throws as PeerMemory::make,
  /// CudaError, OutOfMemory. Takes of `parts` what it needs where it is not null.
  static std::unique_ptr<deliver::Source> make(LoaderParts& parts);

  /// Waits for the batches in flight, for which other ranks are needed.
  ~DeviceGroupSource() override;

  std::unique_ptr<deliver::Job> make_job() override;
  bool draw(deliver::Job& job, bool ahead, std::optional<double> timeout_s) override;
  void finish(deliver::Job& job, deliver::Job* next) override;
  void count(deliver::Job& job) override;
  void fill(deliver::Job& job, std::span<const std::byte> bytes) override;
  void end() override;
  void set_beta(double beta) override;
  uint64_t batches_per_epoch() override;
  select::SamplerPosition position() override;
  void restore(const select::SamplerPosition& position) override;
  void report(deliver::Stats& stats) override;

 private:
  struct Share;  ///< of a batch
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

  DeviceGroupSource(LoaderParts parts, std::unique_ptr<PeerMemory> memory,
                    std::shared_ptr<UpdateExchange> updates);

  Offer offer_of(uint32_t rank) const;

  Agreement::Round attempt(Share& job, const Agreement::Terms& terms,
                           std::shared_ptr<deliver::DeviceBlock>& block);
  void launch(Share& job, deliver::DeviceBlock& block);
  void exchange_updates();
  void gather(uint64_t number, std::byte* block, const base::Stream& stream);
  /// Throws TransportError where a rank did not come to the batch's meeting.
  void wait_met(const Share& job);
  void leave(const std::function<void()>& look);
  [[noreturn]] void raise_missing(uint32_t missing) const;
  bool someone_ended() const;
  /// Of this rank's batch, how many items each owner sent.
  std::vector<uint64_t> received(const Counts& counts);

  LoaderParts parts_;
  store::Shard& shard_;
  bool weighted_;
  uint32_t rank_;
  uint32_t size_;
  std::shared_ptr<store::DeviceIndex> mirror_;
  std::shared_ptr<store::DeviceIndex> home_;  ///< that takes rows to the pages; null: they are the
                                              ///< host's
  std::shared_ptr<const store::DeviceTree> tree_;  ///< of weights; null: uniform
  std::shared_ptr<UpdateExchange> updates_;        ///< likewise; the buffer's
  std::unique_ptr<PeerMemory> memory_;
  DeviceMeeting meeting_;
  DeviceShares shares_;
  DeviceParcels parcels_;
  bool ordered_;  ///< rows are gathered in the order of their addresses
  gather::RowGather gather_;
  gather::AddressOrder order_;
  uint32_t most_blocks_ = UINT32_MAX;
  std::optional<base::Stream> gathers_;  ///< of large batches; none: the mirror's
  base::Event opened_;
  base::Event gathered_[2];  ///< by number of the batch, modulo 2
  base::DeviceArray<unsigned> blocks_done_;
  std::vector<const std::byte*> pages_;  ///< by owner
  std::shared_ptr<deliver::DeviceBlockPool> blocks_;
  base::PinnedArray<Counts> counts_;  ///< by number of the batch, modulo its size
  Assignment assignment_;
  std::shared_ptr<ReadBoard> board_;
  uint64_t* passed_;                ///< this rank's word of the board, as its GPU writes it
  std::vector<uint32_t> readers_;   ///< of this rank's pages, but for what its stream orders
  select::SamplerOptions offered_;  ///< as the hosts look at what is offered
  Agreement agreement_;
  std::vector<std::byte> offers_;  ///< an Offer a rank
  uint64_t number_ = 0;            ///< of the next batch
  uint64_t made_ = 0;              ///< draws
  double beta_;
  std::exception_ptr failure_;  ///< the first, which ends the source's part in the group

  std::mutex mutex_;        ///< of what follows
  deliver::Stats counted_;  ///< bytes by where they came from
};

}  // namespace gear::group

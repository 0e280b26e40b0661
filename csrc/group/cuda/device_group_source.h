#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "deliver/cuda/device_block.h"
#include "group/agreement.h"
#include "group/cuda/device_group_draw.h"
#include "group/group_loader.h"
#include "group/peers/read_board.h"

namespace gear::group {

/// Batches that the GPUs of one node's ranks draw and gather together, from pages that each of them
/// reads by pointer. The hosts agree that a batch is drawn, with a few words each; the rest is put
/// on streams: see DeviceGroupDraw.
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
  void finish(deliver::Job& job) override;
  void count(deliver::Job& job) override;
  void fill(deliver::Job& job, std::span<const std::byte> bytes) override;
  void end() override;
  bool out_of_step() const override { return lost_; }
  select::Law& law() override { return law_; }
  uint64_t batches_per_epoch() override;
  void report(deliver::Stats& stats) override;

 private:
  struct Share;  ///< of a batch

  DeviceGroupSource(LoaderParts parts, std::unique_ptr<PeerMemory> memory,
                    std::shared_ptr<UpdateExchange> updates);

  Agreement::Round attempt(Share& job, const Agreement::Terms& terms,
                           std::shared_ptr<deliver::DeviceBlock>& block);
  /// What the host knows of a batch before it is drawn.
  void describe(plan::Batch& batch) const;
  /// Throws TransportError where a rank did not come to the batch's meeting.
  void wait_met(const Share& job);
  void leave(const std::function<void()>& look);
  [[noreturn]] void raise_missing(uint32_t missing) const;
  bool group_failed() const;
  bool someone_ended() const;
  /// Of this rank's batch, how many items each owner sent.
  std::vector<uint64_t> received(const DeviceGroupDraw::Counts& counts);

  LoaderParts parts_;
  store::Shard& shard_;
  select::Law law_;
  uint32_t rank_;
  uint32_t size_;
  std::shared_ptr<UpdateExchange> updates_;  ///< the buffer's; null: uniform
  DeviceGroupDraw draw_;
  std::shared_ptr<deliver::DeviceBlockPool> blocks_;
  Assignment assignment_;
  std::shared_ptr<ReadBoard> board_;
  uint64_t* passed_;                ///< this rank's word of the board, as its GPU writes it
  std::vector<uint32_t> readers_;   ///< of this rank's pages, but for what its stream orders
  select::SamplerOptions offered_;  ///< as the hosts look at what is offered
  Agreement agreement_;
  std::vector<std::byte> offers_;  ///< a DeviceGroupDraw::Offer a rank
  uint64_t number_ = 0;            ///< of the next batch
  std::exception_ptr failure_;     ///< the first, which ends the source's part in the group
  bool lost_ = false;              ///< there is one that came between the agreement and the launch

  std::mutex mutex_;        ///< of what follows
  deliver::Stats counted_;  ///< bytes by where they came from
};

}  // namespace gear::group

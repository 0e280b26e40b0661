#pragma once

#include <memory>
#include <span>
#include <vector>

#include "group/cuda/device_meeting.h"
#include "group/peers/peers.h"
#include "store/mirror/cuda/shard_mirror.h"
#include "store/mirror/cuda/updates/update_intake.h"

namespace gear::group {

/// Updates of priorities on their way from one rank's GPU to the others' of its node, none of which
/// waits for a host: a rank writes them into memory of the steps' owners.
///
///     rank c   update() ── ring of c ── scatter ──┬─► inbox of c ──── apply ── trees of c
///                                                 └─► inbox of r ──── apply ── trees of r
///
/// The order in which updates count is that of the ranks and, of one rank, that of its calls.
///
/// An exchange is collective: every rank begins it with the same numbers, and makes the same
/// rounds. In one round a rank sends what its part of an inbox has room for; where all ranks' parts
/// have room for all, there is one round:
///
///     exchange.begin(kept);                  // what kept() was on each rank: agreed by the hosts
///     while (exchange.next_round()) {
///       exchange.scatter(inboxes, meeting);  // on the mirror's stream, as all of these
///       exchange.apply(inboxes[rank]);
///     }
///
/// One meeting of the GPUs a round is enough: an inbox has two halves, which take turns.
///
/// Every call under the shard's lock.
class UpdateExchange final : public DeviceUpdates {
 public:
  /// Ranks that an exchange can have: those that map each other's memory.
  static constexpr uint32_t kMostRanks = 64;

  /// `mirror`: of the shard of `rank`, with priorities, which it holds for as long as this object
  /// is. `num_slots`: by rank, what its shard has room for. `room`: entries that a rank sends to
  /// another in one round, the same on all ranks; at most most_room(). Waits for the mirror's
  /// stream; throws OutOfMemory.
  UpdateExchange(store::Shard& shard, std::shared_ptr<store::DeviceIndex> mirror, uint32_t rank,
                 std::span<const uint64_t> num_slots, uint64_t room);
  /// Waits for what is on its way.
  ~UpdateExchange() override;

  static uint64_t most_room(uint32_t ranks) { return (~uint32_t{0} - 1) / ranks; }
  /// Of a rank's inbox, in the memory of its mirror's GPU, aligned to 256 and not initialised.
  static uint64_t inbox_bytes(uint32_t ranks, uint64_t room);
  uint64_t room() const { return room_; }
  int device() const { return mirror_->device(); }

  void keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
            uintptr_t stream) override;
  bool has_room() const override { return intake_.has_room(); }
  uint64_t kept() const override { return intake_.end() - intake_.begin(); }
  void take(std::vector<int64_t>& ids, std::vector<float>& priorities) override;
  void raise_failed() override { intake_.raise_failed(); }

  /// Begins an exchange of the first kept[r] entries of each rank r. What this rank has kept since
  /// they were counted waits for the next.
  void begin(std::span<const uint64_t> kept);
  /// False where everything was sent: the exchange is over.
  bool next_round();
  /// Sends this rank's part of the round, then comes to the meeting (number 0: to none). `inboxes`:
  /// by rank, as this rank's GPU addresses them.
  void scatter(std::span<std::byte* const> inboxes, const Meeting& meeting = {});
  /// Applies what all ranks sent in this round to the shard's mirrors that hold priorities.
  void apply(std::byte* own_inbox);

  /// Of the kernel that sends, while it runs.
  struct Counts {
    unsigned long long entries[kMostRanks];  ///< by owner
    unsigned blocks_done;
  };

 private:
  uint32_t ranks() const { return static_cast<uint32_t>(kept_.size()); }
  /// Entries from one rank's first to the next rank's, and of the half of this round.
  uint64_t stride() const { return store::UpdateSegments::kHeader + room_; }
  uint64_t half_begin() const { return (round_ % 2) * ranks() * stride(); }

  store::Shard& shard_;
  std::shared_ptr<store::DeviceIndex> mirror_;
  uint32_t rank_;
  uint64_t room_;
  store::UpdateIntake intake_;
  base::DeviceArray<Counts> counts_;
  uint64_t round_ = 0;  ///< over all exchanges

  /// Of the exchange that is made:
  std::vector<uint64_t> kept_;  ///< by rank
  uint32_t sender_;             ///< the first rank that has not sent everything
  uint64_t sent_ = 0;           ///< how much of its own it has
  /// Of the round:
  uint64_t own_ = 0;   ///< entries that this rank sends
  uint64_t most_ = 0;  ///< that any rank does
};

}  // namespace gear::group

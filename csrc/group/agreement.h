#pragma once

#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "group/peers/peers.h"
#include "select/law.h"

namespace gear::group {

/// Whether the ranks of a group may draw a batch, and what everybody offers to it: one message of
/// 24 bytes and the offer from every rank to every other.
///
///     updates to their owners ── lock ── settle ── begin_draw ── offer ── unlock ── allgather
///     (if some rank had any        ▲                                      some rank │  │ verdict
///      before the last batch)      │                                   has kept any │  ▼
///                                  └─────────────── updates to their owners ◄──────┘ (once)
class Agreement {
 public:
  enum class Round : uint8_t {
    kDrawn,
    kEpochEnd,
    kNotAllowed,  ///< not yet: some rank's rate limiter
    kNothing,     ///< no rank offers anything, and none has a rate limiter that says to wait
    kOutOfTime,   ///< not yet, and some rank waits no longer
  };
  /// What this rank has to say to a batch.
  struct Terms {
    bool allowed;                        ///< by its rate limiter
    bool out_of_time;                    ///< it waits no longer for the others'
    std::exception_ptr error = nullptr;  ///< why it cannot have one, as no memory; null: it can
    double beta = 0;                     ///< of importance weights; 0 for laws without
    uint64_t room = 0;                   ///< GroupMover::wanted_room(): a power of two, or 0
  };
  /// Writes what this rank offers. Under the shard's lock; what it throws counts as Terms::error.
  using MakeOffer = std::function<void(store::Index& index, std::span<std::byte> offer)>;

  /// Who sends the updates that ranks have kept, before a draw.
  enum class Updates : uint8_t { kByHosts, kByCaller };

  /// `sampler`: with the look-ahead of the outputs.
  Agreement(Peers& peers, const select::SamplerOptions& sampler, transport::Transport& control,
            Updates updates = Updates::kByHosts);

  /// Collective. On kDrawn, which is the same on all ranks, `offers` holds those of all, by rank,
  /// of `offer_bytes` each, and the shard's draw is out: EndDraw. The largest priority seen so far,
  /// which new steps get, is that of all ranks then; by weight, it is before what they offer. On
  /// any other outcome no draw is out. Where a rank has no memory, it throws its error, the others
  /// an OutOfMemory that names it, and all may go on; where a rank failed otherwise, as its GPU
  /// did, the others throw a TransportError. Throws InvalidArgument, on all ranks alike, where
  /// their betas differ, and all may go on; and, before anything is sent, in a thread whose draw is
  /// out.
  Round agree(const Terms& terms, uint64_t offer_bytes, const MakeOffer& offer,
              std::vector<std::byte>& offers);
  /// The most that a rank said of Terms::room.
  uint64_t room() const;

 private:
  /// What a rank says before its offer.
  struct Ready {
    enum Flag : uint32_t {
      kKeptUpdates = 1,
      kOffersSome = 2,
      kHeldBack = 4,
      kLimited = 8,
      kOutOfTime = 16,
      kNoMemory = 32,
      kFailed = 64,
      kToldUpdates = 128,  ///< just before this message
    };

    uint32_t flags;
    float largest;         ///< priority of steps seen so far
    float largest_weight;  ///< and of episodes' own
    uint32_t room_bits;    ///< width of Terms::room
    double beta;
  };

  void check_same_beta() const;
  bool offers_compare() const;
  void raise_largest() const;
  void check_all_can() const;
  bool any(Ready::Flag flag) const;
  void tell_updates(std::exception_ptr& error);

  void exchange(const Terms& terms, std::exception_ptr& error, uint64_t offer_bytes,
                const MakeOffer& offer, std::vector<std::byte>& offers);
  Ready begin(const Terms& terms, std::exception_ptr& error, const MakeOffer& offer,
              std::span<std::byte> out);

  Peers& peers_;
  store::Shard& shard_;
  select::SamplerOptions sampler_;
  transport::Transport& control_;
  Updates updates_;
  std::vector<std::byte> own_;  ///< message; kept for its memory, as what follows
  std::vector<std::byte> all_;
  std::vector<Ready> ranks_;      ///< what they said
  bool told_ = false;             ///< this rank's updates, before what it says next
  bool expects_updates_ = false;  ///< as on all ranks: some had any before the last batch
};

/// Ends the draw that is out on a shard, at the end of its scope; without the lock.
class EndDraw {
 public:
  explicit EndDraw(store::Shard& shard) : shard_(&shard) {}
  ~EndDraw();
  EndDraw(const EndDraw&) = delete;
  EndDraw& operator=(const EndDraw&) = delete;
  /// Somebody else ends it.
  void release() { shard_ = nullptr; }

 private:
  store::Shard* shard_;
};

}  // namespace gear::group

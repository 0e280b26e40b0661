#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "select/group/group_draw.h"
#include "select/group/own_draws.h"
#include "select/group/own_places.h"
#include "select/law.h"
#include "select/order.h"
#include "select/space.h"

namespace gear::select {

/// Chooses one batch for all ranks of a group from the shards of all of them, as if they were one
/// buffer: the shards' contents one after the other, by rank. Every rank says what its shard
/// offers, all see all offers, and each resolves the draws that fall on its own; the same seed and
/// contents give the same draws at any number of ranks.
///
///   rank r, under its shard's lock:   offer() ──allgather──► select() ◄──gather──► others
///
/// By chance, draw n falls on one number below the total over all ranks, the same on every rank;
/// its owner resolves it as the Sampler of one shard would. A rank offers its total, and
/// beside it the version of its content for an epoch, else the scale of its weights, and tells how
/// many draws fell on it. Cost: one number a draw of the whole batch (see base::philox_scan, or the
/// permutation of an epoch, or what OwnPlaces says where that is less), and what Space costs for
/// the own ones.
///
/// In an order, a rank lists the keys of its own first items; how many of each list are among the
/// first ones of all is searched for together, without an item that travels: see GroupCut. kFifo
/// and kLifo take episodes by age: the first ones of all ranks, by rank, before the second. Cost:
/// what Order costs on one shard, and per round of the search GroupCut::kNumbers numbers a rank
/// received, and their sorting: one round for batches of up to kSamples items over all ranks, and
/// one more for every factor of kSamples / 2 that the lists of all hold per rank beyond that. Where
/// the draws' numbers are asked for (locality off), one more message: the keys of the batch, 8
/// bytes an item.
///
/// Probabilities are those of the whole buffer. Weights are left at 1: importance weights need the
/// least probability over all ranks, of the batch or of all that may be drawn, and are filled in
/// when it is known, by set_importance() with the beta of the draw.
class GroupSampler {
 public:
  /// `rank` of `size` ranks. Throws as Sampler; and InvalidArgument for more ranks than an id can
  /// name, and for a buffer with max_times_sampled and a law by chance, since a draw on one rank
  /// would change what the next one on another may choose.
  GroupSampler(const SamplerOptions& options, store::Index& index, uint32_t rank, uint32_t size);

  Law& law() { return law_; }
  const Law& law() const { return law_; }

  /// Bytes of every rank's offer for a batch.
  size_t offer_bytes() const;
  /// What the others need to know of this shard for a batch of `count` items over all ranks; its
  /// index then stands still until select() is done: Shard::begin_draw(). Under the lock, as
  /// select().
  void offer(store::Index& index, uint64_t count, std::span<std::byte> out);
  /// Replaces `out`, with fewer items when the law has no more to give. Collective. Throws
  /// InvalidArgument, on every rank alike, where no shard offers anything, and as Epoch::next does.
  void select(store::Index& index, const GroupRequest& request, GroupDraw& out);

 private:
  void draw_by_chance(store::Index& index, const GroupRequest& request, GroupDraw& out);
  void find_own(const store::Index& index, uint64_t items, GroupDraw& out);
  void take_in_order(const store::Index& index, const Epoch& epoch, uint64_t items, GroupDraw& out);
  void take_first(store::Index& index, const GroupRequest& request, GroupDraw& out);

  Law law_;
  uint32_t rank_;
  uint32_t size_;
  Space space_;
  InOrder in_order_;  // of an epoch that is not shuffled
  std::vector<RankTotal> offered_;
  OwnDraws own_;
  OwnPlaces places_;
  Order order_;
  std::vector<Order::Item> listed_;  // the own first items
  std::vector<uint64_t> keys_;       // theirs
  // Of one draw:
  std::vector<uint32_t> numbers_;
  std::vector<uint64_t> offsets_;
};

}  // namespace gear::select

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "select/importance.h"
#include "select/sampler.h"

namespace gear::select {

/// A batch over all ranks, as one of them is asked for it.
struct GroupRequest {
  /// Gives `mine` to every rank; `all`: what each gave, rank after rank, counts[r] numbers of rank
  /// r's. Collective, with the same counts on all; the lock is not held meanwhile.
  using Gather = std::function<void(std::span<const uint64_t> mine,
                                    std::span<const uint64_t> counts, std::span<uint64_t> all)>;

  uint64_t items;                     ///< over all ranks
  std::span<const std::byte> offers;  ///< of all ranks, one after the other
  bool numbered;                      ///< whether GroupDraw::own_draws is asked for
  Gather gather;
};

/// The draws of one global batch.
struct GroupDraw {
  static constexpr float kNone = std::numeric_limits<float>::infinity();

  uint64_t items = 0;               ///< over all ranks; 0: end of an epoch
  std::vector<uint64_t> counts;     ///< by rank: how many of them its shard holds
  Selection own;                    ///< those that this rank holds, in the order of the draws
  std::vector<uint32_t> own_draws;  ///< and which of the draws each is: ascending
  /// Of the importance weights, see below; only kWeighted has any.
  double beta = 0;
  float least = kNone;  ///< probability of the own ones

  void clear() {
    items = 0;
    counts.clear();
    own.clear();
    own_draws.clear();
  }
};

/// Chooses one batch for all ranks of a group from the shards of all of them, as if they were one
/// buffer: the shards' contents one after the other, by rank. Every rank says what its shard
/// offers, all see all offers, and each resolves the draws that fall on its own; the same seed and
/// contents give the same draws at any number of ranks.
///
///   rank r, under its shard's lock:   offer() ──allgather──► select() ◄──gather──► others
///
/// kFifo and kLifo take episodes by age: the first ones of all ranks, by rank, before the second.
///
/// Probabilities are those of the whole buffer. Weights are left at 1: importance weights need the
/// least probability over all ranks and are filled in when it is known, by set_importance() with
/// the beta of the draw.
class GroupSampler : public Law {
 public:
  /// Bytes of every rank's offer for a batch of `count` items over all ranks.
  virtual size_t offer_bytes(uint64_t count) const = 0;
  /// What the others need to know of this shard, whose index then stands still until select() is
  /// done: Shard::begin_draw(). Under the lock, as select().
  virtual void offer(store::Index& index, uint64_t count, std::span<std::byte> out) = 0;
  /// Replaces `out`, with fewer items when the policy has no more to give. Collective. Throws
  /// InvalidArgument, on every rank alike, where no shard offers anything, and as Epoch::next does.
  virtual void select(store::Index& index, const GroupRequest& request, GroupDraw& out) = 0;
};

/// `rank` of `size` ranks. Throws as make_sampler; and InvalidArgument for more ranks than an id
/// can name, and for a buffer with max_times_sampled and a policy that draws by chance, since a
/// draw on one rank would change what the next one on another may choose.
std::unique_ptr<GroupSampler> make_group_sampler(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size);

/// kUniform, kWeighted.
std::unique_ptr<GroupSampler> make_group_by_chance(const SamplerOptions& options,
                                                   store::Index& index, uint32_t rank,
                                                   uint32_t size);
std::unique_ptr<GroupSampler> make_group_sequential(const SamplerOptions& options,
                                                    store::Index& index, uint32_t rank,
                                                    uint32_t size);
/// kFifo, kLifo, kTopK.
std::unique_ptr<GroupSampler> make_group_ordered(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size);

}  // namespace gear::select

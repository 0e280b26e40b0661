#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "select/importance.h"
#include "select/sampler.h"

namespace gear::select {

/// The draws of one global batch.
struct GroupDraw {
  static constexpr float kNone = std::numeric_limits<float>::infinity();

  std::vector<uint16_t> owners;  ///< by draw: the rank whose shard holds it; empty: end of an epoch
  std::vector<uint32_t> own_draws;  ///< which of them this rank holds, ascending
  Selection own;                    ///< and what they are, one by one
  /// Of the importance weights, see below; only kWeighted has any.
  double beta = 0;
  float least = kNone;  ///< probability of the own ones

  void clear() {
    owners.clear();
    own_draws.clear();
    own.clear();
  }

  /// The next `count` draws fall on `rank`, which is this one or not.
  void add(uint32_t rank, uint64_t count, bool is_own) {
    for (uint64_t draw = owners.size(); is_own && draw < owners.size() + count; ++draw) {
      own_draws.push_back(static_cast<uint32_t>(draw));
    }
    owners.insert(owners.end(), count, static_cast<uint16_t>(rank));
  }
};

/// Chooses one batch for all ranks of a group from the shards of all of them, as if they were one
/// buffer: the shards' contents one after the other, by rank. Every rank says what its shard
/// offers, all see all offers, and each resolves the draws that fall on its own; the same seed and
/// contents give the same draws at any number of ranks.
///
///   rank r, under its shard's lock:   offer() ──allgather──► select()
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
  /// `offers`: of all ranks, one after the other. `count`: items over all ranks; `out` is replaced.
  /// Fewer when the policy has no more to give. Throws InvalidArgument, on every rank alike, where
  /// no shard offers anything, and as Epoch::next does.
  virtual void select(store::Index& index, std::span<const std::byte> offers, uint64_t count,
                      GroupDraw& out) = 0;
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

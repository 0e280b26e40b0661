#pragma once

#include <memory>
#include <span>

#include "select/law.h"
#include "select/selection.h"

namespace gear::select {

/// 1 / total, as every law rounds it.
inline float one_of(double total) { return static_cast<float>(1.0 / total); }

/// What a law draws from, of one shard: its items end to end, each one wide, or as wide as its
/// weight w_i = p_i^alpha. Cost: one descent of a tree a target: of page counts (4 levels at 1e6
/// steps), or of weights (5).
class Space {
 public:
  /// Weighted where the law is.
  Space(const SamplerOptions& options, store::Index& index);

  /// How wide all of it is.
  uint64_t total(const store::Index& index) const { return tree(index).total(); }
  /// Widths are in units of 2^-shift() of a p^alpha; 0 where all are one wide.
  int32_t shift() const { return weights_ ? weights_->scale.shift : 0; }
  /// Probability of the item that is drawn least of all that are; infinity: nothing is. Of a law
  /// whose importance weights need it.
  float least(double all) const;
  /// Changes whenever the items do.
  uint64_t version(const store::Index& index) const {
    return steps_ ? steps_->version() : index.drawables().heads_version();
  }

  /// Appends the items on which the targets, in [0, total(index)), fall. `all`: the total of all
  /// shards that are drawn from, in the units of this one.
  void add(const store::Index& index, std::span<const uint64_t> targets, double all,
           Selection& out) const;
  /// The same, to as many places as there are targets. From any thread.
  void resolve(const store::Index& index, std::span<const uint64_t> targets, double all,
               store::Anchor* anchors, float* probabilities) const;
  /// With which an item is drawn, as resolve() has it; 0 for what is not in it.
  float probability(const store::Index& index, store::Anchor anchor, double all) const;

 private:
  const store::SumTree& tree(const store::Index& index) const {
    return weights_ ? weights_->sums : steps_ ? steps_->counts() : index.drawables().heads();
  }
  template <class Item>
  void find(const store::SumTree& tree, std::span<const uint64_t> targets, Item item) const;

  std::shared_ptr<store::Drawable> steps_;            // null: episodes
  std::shared_ptr<const store::WeightTree> weights_;  // null: all items are one wide
};

}  // namespace gear::select

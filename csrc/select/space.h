#pragma once

#include <memory>
#include <span>

#include "select/law.h"
#include "select/selection.h"

namespace gear::select {

/// 1 / total, as every law rounds it.
inline float one_of(uint64_t total) { return static_cast<float>(1.0 / static_cast<double>(total)); }

/// What a law draws from, of one shard: its items end to end, each one wide, or as wide as its
/// weight w_i = p_i^alpha. Cost: one descent of a tree a target: of page counts (4 levels at 1e6
/// steps), or of weights (5).
class Space {
 public:
  /// Weighted where the law is.
  Space(const SamplerOptions& options, store::Index& index);

  /// How wide all of it is.
  uint64_t total(const store::Index& index) const { return tree(index).total(); }
  /// Changes whenever the items do.
  uint64_t version(const store::Index& index) const {
    return steps_ ? steps_->version() : index.drawables().heads_version();
  }

  /// Appends the items on which the targets, in [0, total(index)), fall. `all`: the total of all
  /// shards that are drawn from.
  void add(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
           Selection& out) const;
  /// The same, to as many places as there are targets. From any thread.
  void resolve(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
               store::Anchor* anchors, float* probabilities) const;
  /// With which an item is drawn, as resolve() has it; 0 for what is not in it.
  float probability(const store::Index& index, store::Anchor anchor, uint64_t all) const;

 private:
  const store::SumTree& tree(const store::Index& index) const {
    return weights_ ? *weights_ : steps_ ? steps_->counts() : index.drawables().heads();
  }
  template <class Item>
  void find(const store::SumTree& tree, std::span<const uint64_t> targets, Item item) const;

  std::shared_ptr<store::Drawable> steps_;         // null: episodes
  std::shared_ptr<const store::SumTree> weights_;  // null: all items are one wide
};

}  // namespace gear::select

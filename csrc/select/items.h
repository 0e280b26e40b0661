#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "base/threads/prefetch.h"
#include "select/sampler.h"

namespace gear::select {

/// Targets that are looked up at once: what they hit stays in the nearest cache.
constexpr size_t kHitsAtOnce = 256;

/// 1 / total, as every sampler rounds it.
inline float one_of(uint64_t total) { return static_cast<float>(1.0 / static_cast<double>(total)); }

/// The items of a shard laid end to end, each one wide: where a target falls. Cost: one descent of
/// the tree of page counts a target (4 levels at 1e6 steps).
class EqualItems {
 public:
  EqualItems(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit), steps_(drawable_steps(options, index)) {}

  uint64_t total(const store::Index& index) const { return counts(index).total(); }
  /// Changes whenever the items do.
  uint64_t version(const store::Index& index) const {
    return steps_ ? steps_->version() : index.drawables().heads_version();
  }

  /// Appends the items on which the targets, in [0, total(index)), fall. `all`: what all shards
  /// that are drawn from have in total.
  void add(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
           Selection& out) const {
    const size_t first = out.extend(targets.size());
    resolve(index, targets, all, out.anchors.data() + first, out.probabilities.data() + first);
  }

  /// The same, to as many places as there are targets. From any thread.
  void resolve(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
               store::Anchor* anchors, float* probabilities) const {
    const float probability = one_of(all);
    std::array<store::SumTree::Hit, kHitsAtOnce> hits;
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(hits.size(), targets.size() - done);
      counts(index).find(targets.subspan(done, count), {hits.data(), count});
      for (size_t i = 0; i < count; ++i) {
        base::prefetch(&index.page(page_of(hits[i])));
      }
      for (size_t i = 0; i < count; ++i) {
        const uint32_t page = page_of(hits[i]);
        const uint32_t row = steps_ ? steps_->nth(page, hits[i].remainder) : 0;
        anchors[done + i] = {page, row};
        probabilities[done + i] = probability;
      }
      done += count;
    }
  }

 private:
  const store::SumTree& counts(const store::Index& index) const {
    return steps_ ? steps_->counts() : index.drawables().heads();
  }
  static uint32_t page_of(const store::SumTree::Hit& hit) {
    return static_cast<uint32_t>(hit.leaf);
  }

  store::Unit unit_;
  std::shared_ptr<store::Drawable> steps_;
};

/// The same with items as wide as their weights, w_i = p_i^alpha. Cost: one descent of the weight
/// tree a target (5 levels at 1e6 steps).
class WeightedItems {
 public:
  WeightedItems(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit),
        steps_(drawable_steps(options, index)),
        tree_(steps_ ? steps_->weights(options.alpha) : index.head_weights(options.alpha)) {}

  uint64_t total(const store::Index&) const { return tree_->total(); }

  void add(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
           Selection& out) const {
    const size_t first = out.extend(targets.size());
    resolve(index, targets, all, out.anchors.data() + first, out.probabilities.data() + first);
  }

  void resolve(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
               store::Anchor* anchors, float* probabilities) const {
    const store::SumTree& tree = *tree_;
    const double scale = 1.0 / static_cast<double>(all);
    std::array<store::SumTree::Hit, kHitsAtOnce> hits;
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(hits.size(), targets.size() - done);
      tree.find(targets.subspan(done, count), {hits.data(), count});
      for (size_t i = 0; i < count; ++i) {
        const uint64_t leaf = hits[i].leaf;
        const store::Anchor anchor = unit_ == store::Unit::kStep
                                         ? index.anchor_of(static_cast<uint32_t>(leaf))
                                         : store::Anchor{static_cast<uint32_t>(leaf), 0};
        base::prefetch(&index.page(anchor.page));
        anchors[done + i] = anchor;
        probabilities[done + i] = static_cast<float>(static_cast<double>(tree[leaf]) * scale);
      }
      done += count;
    }
  }

 private:
  store::Unit unit_;
  std::shared_ptr<store::Drawable> steps_;
  std::shared_ptr<const store::SumTree> tree_;
};

}  // namespace gear::select

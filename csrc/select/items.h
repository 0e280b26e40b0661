#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "base/touch.h"
#include "select/sampler.h"

namespace gear::select {

// What may be drawn, counted by page; total() is how much there is.
inline const store::SumTree& offered(const store::Index& index, store::Unit unit) {
  return unit == store::Unit::kStep ? index.anchors() : index.heads();
}

// 1 / total, as every sampler rounds it.
inline float one_of(uint64_t total) { return static_cast<float>(1.0 / static_cast<double>(total)); }

// The items of a shard laid end to end, each one wide: where a target falls. Cost: one descent of
// the tree of page counts a target (4 levels at 1e6 steps).
class EqualItems {
 public:
  EqualItems(const SamplerOptions& options, store::Index&) : unit_(options.unit) {}

  uint64_t total(const store::Index& index) const { return offered(index, unit_).total(); }

  // Appends the items on which the targets, in [0, total(index)), fall. `all`: what all shards that
  // are drawn from have in total.
  void add(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
           Selection& out) {
    const float probability = one_of(all);
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(hits_.size(), targets.size() - done);
      offered(index, unit_).find(targets.subspan(done, count), {hits_.data(), count});
      for (size_t i = 0; i < count; ++i) __builtin_prefetch(&index.page(page_of(i)));
      const size_t first = out.extend(count);
      for (size_t i = 0; i < count; ++i) {
        const uint32_t page = page_of(i);
        const uint32_t row =
            unit_ == store::Unit::kStep ? index.nth_anchor(page, hits_[i].remainder) : 0;
        out.anchors[first + i] = {page, row};
        out.probabilities[first + i] = probability;
      }
      done += count;
    }
  }

 private:
  uint32_t page_of(size_t i) const { return static_cast<uint32_t>(hits_[i].leaf); }

  store::Unit unit_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
};

// The same with items as wide as their weights, w_i = p_i^alpha. Cost: one descent of the weight
// tree a target (5 levels at 1e6 steps).
class WeightedItems {
 public:
  WeightedItems(const SamplerOptions& options, store::Index& index)
      : unit_(options.unit), tree_(index.weights(options.alpha, options.unit)) {}

  uint64_t total(const store::Index&) const { return tree_->total(); }

  void add(const store::Index& index, std::span<const uint64_t> targets, uint64_t all,
           Selection& out) {
    const store::SumTree& tree = *tree_;
    const double scale = 1.0 / static_cast<double>(all);
    for (size_t done = 0; done < targets.size();) {
      const size_t count = std::min(hits_.size(), targets.size() - done);
      tree.find(targets.subspan(done, count), {hits_.data(), count});
      const size_t first = out.extend(count);
      for (size_t i = 0; i < count; ++i) {
        const uint64_t leaf = hits_[i].leaf;
        const store::Anchor anchor = unit_ == store::Unit::kStep
                                         ? index.anchor_of(static_cast<uint32_t>(leaf))
                                         : store::Anchor{static_cast<uint32_t>(leaf), 0};
        base::touch(&index.page(anchor.page));
        out.anchors[first + i] = anchor;
        out.probabilities[first + i] = static_cast<float>(static_cast<double>(tree[leaf]) * scale);
      }
      done += count;
    }
  }

 private:
  store::Unit unit_;
  std::shared_ptr<const store::SumTree> tree_;
  std::array<store::SumTree::Hit, kDrawChunk> hits_;
};

}  // namespace gear::select

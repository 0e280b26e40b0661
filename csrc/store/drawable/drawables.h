#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "store/drawable/drawable.h"

namespace gear::store {

/// What may be drawn of an index: steps, by look-ahead and mask, and ended episodes as a whole;
/// with what weight; and what was drawn as often as it may be.
class Drawables {
 public:
  Drawables(const IndexOptions& options, IndexState& state, Slots& slots, Dirty& dirty);

  uint64_t bytes() const;
  /// Kept for as long as somebody holds it; look-ahead 0 without a mask always. The first call is
  /// O(pages).
  const std::shared_ptr<Drawable>& steps(uint64_t lookahead,
                                         const std::shared_ptr<const Mask>& mask);
  const Drawable& steps() const { return *steps_[0]; }
  const DrawCounts& draws() const { return draws_; }
  /// A mask that keeps out nothing, for as long as somebody holds it.
  std::shared_ptr<Mask> make_mask();
  /// Keeps the step out of what may be drawn through the mask, or lets it in.
  void mark(Mask& mask, Anchor anchor, bool keep_out);
  /// 1 at the head page of every episode that may be drawn as a whole.
  const SumTree& heads() const { return heads_; }
  /// Changes whenever the episodes that may be drawn do.
  uint64_t heads_version() const { return heads_version_; }
  /// By head page; as Drawable::weights().
  std::shared_ptr<const WeightTree> head_weights(double alpha, bool with_least = false);
  /// Whether the episode may be drawn as a whole.
  bool drawable(uint32_t episode) const;
  /// Whether nothing of an ended episode can be drawn any more, whatever batches in flight give
  /// back.
  bool exhausted(uint32_t episode) const;

  // ---- what happens to the index, before (drops_head) or after (the others) it does ----
  void opened(uint32_t episode);
  void appended(uint32_t episode);
  /// Asks for what appended() looks at, whose last page this is.
  void prefetch(uint32_t episode, uint32_t page) const;
  void ended(uint32_t episode);
  void drops_head(uint32_t episode);
  /// One draw of a step, or of the episode that it is of; with max_times_sampled alone, as the next
  /// two.
  void sampled(Anchor anchor, Unit unit);
  /// It was delivered.
  void delivered(Anchor anchor, Unit unit);
  /// It was not, and does not count.
  void given_back(Anchor anchor, Unit unit);
  /// Priorities were set.
  void updated(std::span<const Anchor> steps, std::span<const float> priorities);
  /// The episode's own weight, priority or head page changed.
  void refresh(uint32_t episode);
  /// The largest priority of steps, or of episodes, is another.
  void follow_largest();
  /// Every priority may have changed.
  void reweigh();
  /// Whether somebody looks at the priorities of episodes: holds one of their trees.
  bool weighs_episodes();

 private:
  void withdraw(uint32_t episode);
  void drop_unused();
  /// Sets the episode's leaf; whether its weight saturated.
  bool weigh(WeightTree& tree, uint32_t episode);
  void weigh_all(WeightTree& tree);
  float priority_of(uint32_t episode) const;

  const IndexOptions& options_;
  IndexState& state_;
  Slots& slots_;
  Dirty& dirty_;
  DrawCounts draws_;
  std::vector<std::shared_ptr<Drawable>> steps_;  // the first: look-ahead 0, no mask
  std::vector<std::shared_ptr<Mask>> masks_;
  SumTree heads_;
  WeightTrees head_weights_;
  // By episode: the priority whose weights were counted where they saturated. An episode is weighed
  // anew whenever its head page changes, and counted again only with another priority.
  std::vector<float> counted_;
  uint64_t heads_version_ = 0;
};

/// A weight as a priority: at most the largest float.
inline float as_priority(double weight) {
  return static_cast<float>(std::min<double>(weight, std::numeric_limits<float>::max()));
}
/// Its own weight, or the mean of its stored steps' priorities.
double episode_priority(const IndexState& state, const Episode& episode);

}  // namespace gear::store

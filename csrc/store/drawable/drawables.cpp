#include "store/drawable/drawables.h"

#include <algorithm>
#include <utility>

#include "store/drawable/fixed_point.h"
#include "store/drawable/priority_sum.h"

namespace gear::store {
namespace {

constexpr float kNotCounted = -1.0F;  // no priority is negative

}  // namespace

double episode_priority(const IndexState& state, const Episode& episode) {
  if (episode.weight >= 0) {
    return episode.weight;
  }
  if (episode.end == episode.begin) {
    return 0;
  }
  return mean_of(episode.priority_sum, episode.end - episode.begin, state.sum_shift);
}

Drawables::Drawables(const IndexOptions& options, IndexState& state, Slots& slots, Dirty& dirty)
    : options_(options),
      state_(state),
      slots_(slots),
      dirty_(dirty),
      draws_(options, state, slots),
      heads_(options.num_pages) {
  steps_.push_back(
      std::make_shared<Drawable>(options_, state_, slots_, draws_, dirty_, 0, nullptr));
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh(e);
  }
}

uint64_t Drawables::bytes() const {
  uint64_t total = draws_.bytes() + heads_.bytes() + head_weights_.bytes();
  for (const auto& steps : steps_) {
    total += steps->bytes();
  }
  for (const auto& mask : masks_) {
    total += mask->bytes();
  }
  return total;
}

const std::shared_ptr<Drawable>& Drawables::steps(uint64_t lookahead,
                                                  const std::shared_ptr<const Mask>& mask) {
  for (const auto& steps : steps_) {
    if (steps->lookahead() == lookahead && steps->mask() == mask) {
      return steps;
    }
  }
  drop_unused();
  steps_.push_back(
      std::make_shared<Drawable>(options_, state_, slots_, draws_, dirty_, lookahead, mask));
  return steps_.back();
}

void Drawables::drop_unused() {
  head_weights_.drop_unused();
  const auto unused = std::remove_if(steps_.begin() + 1, steps_.end(),
                                     [](const auto& steps) { return steps.use_count() == 1; });
  steps_.erase(unused, steps_.end());
  std::erase_if(masks_, [](const auto& mask) { return mask.use_count() == 1; });
}

std::shared_ptr<Mask> Drawables::make_mask() {
  drop_unused();
  masks_.push_back(std::make_shared<Mask>(options_.num_pages, options_.page_steps));
  return masks_.back();
}

void Drawables::mark(Mask& mask, Anchor anchor, bool keep_out) {
  const auto [page, row] = anchor;
  if (mask.keeps_out(page, row) == keep_out) {
    return;
  }
  if (keep_out) {
    mask.out_.set(page, row);
  } else {
    mask.out_.clear(page, row);
  }
  const uint64_t saturated = state_.counters.saturated_weights;  // counted when they were let in
  for (const auto& steps : steps_) {
    if (steps->mask().get() == &mask) {
      steps->look_again(anchor);
    }
  }
  state_.counters.saturated_weights = saturated;
}

std::shared_ptr<const WeightTree> Drawables::head_weights(double alpha, bool with_least) {
  std::shared_ptr<WeightTree> tree = head_weights_.find(alpha);
  if (!tree) {
    tree = head_weights_.make(alpha, options_.num_pages, state_.largest_of_episodes());
    weigh_all(*tree);
  }
  if (with_least && !tree->least) {
    tree->least.emplace(tree->sums);
  }
  return tree;
}

bool Drawables::weighs_episodes() {
  head_weights_.drop_unused();
  return !head_weights_.empty();
}

float Drawables::priority_of(uint32_t e) const {
  return as_priority(episode_priority(state_, state_.episodes[e]));
}

bool Drawables::weigh(WeightTree& tree, uint32_t e) {
  bool saturated = false;
  tree.set(state_.episodes[e].head, fixed_weight(priority_of(e), tree.scale, saturated));
  return saturated;
}

void Drawables::weigh_all(WeightTree& tree) {
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    if (drawable(e)) {
      state_.counters.saturated_weights += weigh(tree, e) ? 1 : 0;
    }
  }
}

// Of an ended episode every stored step that is unspent may be drawn.
bool Drawables::drawable(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  return episode.ended() && episode.begin < episode.end && steps().first(e) != kNone &&
         !draws_.episode_spent(e);
}

bool Drawables::exhausted(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  return episode.ended() && !drawable(e) &&
         (episode.begin == episode.end || draws_.in_flight(e) == 0);
}

// ---- what happens to the index ----

void Drawables::opened(uint32_t e) {
  if (steps_.size() > 1) {
    drop_unused();
  }
  if (e < counted_.size()) {
    counted_[e] = kNotCounted;
  }
  draws_.opened(e);
  for (const auto& steps : steps_) {
    steps->opened(e);
  }
}

void Drawables::appended(uint32_t e) {
  for (const auto& steps : steps_) {
    steps->extend(e);
  }
}

void Drawables::prefetch(uint32_t e, uint32_t p) const {
  for (const auto& steps : steps_) {
    steps->prefetch(e, p);
  }
}

void Drawables::ended(uint32_t e) {
  appended(e);
  refresh(e);
}

void Drawables::drops_head(uint32_t e) {
  const uint32_t p = state_.episodes[e].head;
  withdraw(e);
  for (const auto& steps : steps_) {
    steps->drops_head(e);
  }
  draws_.drop(p);
  for (const auto& mask : masks_) {
    mask->out_.clear_page(p);
  }
}

void Drawables::sampled(Anchor anchor, Unit unit) {
  draws_.sampled(anchor, unit);
  if (unit == Unit::kStep) {
    for (const auto& steps : steps_) {
      steps->look_again(anchor);
    }
  }
  const uint32_t e = state_.pages[anchor.page].episode;
  if (!drawable(e)) {
    withdraw(e);
  }
}

void Drawables::delivered(Anchor anchor, Unit unit) { draws_.delivered(anchor, unit); }

void Drawables::given_back(Anchor anchor, Unit unit) {
  const uint64_t saturated = state_.counters.saturated_weights;  // counted when they were drawn
  draws_.given_back(anchor, unit);
  if (unit == Unit::kStep) {
    for (const auto& steps : steps_) {
      steps->look_again(anchor);
    }
  }
  refresh(state_.pages[anchor.page].episode);
  state_.counters.saturated_weights = saturated;
}

void Drawables::updated(std::span<const Anchor> anchors, std::span<const float> priorities) {
  for (const auto& steps : steps_) {
    steps->updated(anchors, priorities);
  }
}

void Drawables::withdraw(uint32_t e) {
  const uint32_t head = state_.episodes[e].head;
  if (head == kNone || heads_[head] == 0) {
    return;
  }
  dirty_.page(head);
  ++heads_version_;
  heads_.set(head, 0);
  for (const auto& tree : head_weights_) {
    tree->set(head, 0);
  }
}

void Drawables::refresh(uint32_t e) {
  if (!drawable(e)) {
    return;
  }
  const Episode& episode = state_.episodes[e];
  if (heads_[episode.head] == 0) {
    dirty_.page(episode.head);
    ++heads_version_;
    heads_.set(episode.head, 1);
  }
  if (e >= counted_.size()) {
    counted_.resize(state_.episodes.size(), kNotCounted);
  }
  const float priority = priority_of(e);
  const bool counts = std::exchange(counted_[e], priority) != priority;
  for (const auto& tree : head_weights_) {
    const bool saturated = weigh(*tree, e);
    state_.counters.saturated_weights += saturated && counts ? 1 : 0;
  }
}

void Drawables::follow_largest() {
  for (const auto& steps : steps_) {
    steps->follow_largest();
  }
  head_weights_.follow(state_.largest_of_episodes(), [&](WeightTree& tree) { weigh_all(tree); });
}

void Drawables::reweigh() {
  drop_unused();
  for (const auto& steps : steps_) {
    steps->reweigh();
  }
}

}  // namespace gear::store

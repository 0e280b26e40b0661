#include "store/drawable/drawable.h"

#include <algorithm>
#include <utility>

#include "store/drawable/fixed_point.h"

namespace gear::store {

Drawable::Drawable(const IndexOptions& options, IndexState& state, const Slots& slots,
                   const DrawCounts& draws, Dirty& dirty, uint64_t lookahead,
                   std::shared_ptr<const Mask> mask)
    : options_(options),
      state_(state),
      slots_(slots),
      draws_(draws),
      dirty_(dirty),
      lookahead_(lookahead),
      mask_(std::move(mask)),
      bits_(options.num_pages, options.page_steps),
      counts_(options.num_pages),
      reached_(state.episodes.size()) {
  if (draws.limited() || mask_) {
    lists_.emplace(options, state);
  }
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    opened(e);
    extend(e);
  }
}

uint64_t Drawable::bytes() const {
  return bits_.bytes() + counts_.bytes() + weights_.bytes() + reached_.size() * sizeof(Reached) +
         (lists_ ? lists_->bytes() : 0);
}

uint32_t Drawable::reached(uint32_t p) const {
  const Page& page = state_.pages[p];
  if (page.episode == kNone) {
    return 0;
  }
  const uint64_t end = reached_[page.episode].end;
  return end <= page.first_step
             ? 0
             : static_cast<uint32_t>(std::min(end - page.first_step, options_.page_steps));
}

void Drawable::opened(uint32_t e) {
  weights_.drop_unused();
  if (e >= reached_.size()) {
    reached_.resize(e + 1);
  }
  reached_[e] = {state_.episodes[e].begin, kNone};
  if (lists_) {
    lists_->opened(e);
  }
}

void Drawable::prefetch(uint32_t e, uint32_t p) const {
  base::prefetch(&reached_[e]);
  bits_.prefetch(p);
  counts_.prefetch(p);
}

void Drawable::extend(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  Reached& reached = reached_[e];
  uint64_t target = episode.end;
  if (!episode.ended()) {
    target -= std::min(target, lookahead_);
  }
  while (reached.end < target) {
    if (reached.page == kNone) {
      reached.page = episode.head;
    } else if (reached.end == state_.pages[reached.page].first_step + options_.page_steps) {
      reached.page = state_.pages[reached.page].next;
    }
    const uint64_t first = state_.pages[reached.page].first_step;
    const uint64_t stop = std::min(target, first + options_.page_steps);
    reach(reached.page, static_cast<uint32_t>(reached.end - first),
          static_cast<uint32_t>(stop - first));
    reached.end = stop;
  }
}

void Drawable::reach(uint32_t p, uint32_t from, uint32_t to) {
  ++version_;
  uint64_t count = to - from;
  if (!lists_) {
    bits_.set_run(p, from, to);
  } else {
    for (uint32_t row = from; row < to; ++row) {
      if (kept_out(p, row)) {
        --count;
      } else {
        bits_.set(p, row);
      }
    }
  }
  set_count(p, counts_[p] + count);
  for (const auto& tree : weights_) {
    set_weights(*tree, p, from, to);
  }
}

void Drawable::set_count(uint32_t p, uint64_t count) {
  const uint64_t before = counts_[p];
  dirty_.page(p);
  counts_.set(p, count);
  if (lists_ && (before == 0) != (count == 0)) {
    if (count == 0) {
      lists_->remove(p);
    } else {
      lists_->add(p);
    }
  }
}

void Drawable::drops_head(uint32_t e) {
  weights_.drop_unused();
  const uint32_t p = state_.episodes[e].head;
  const uint32_t shown = reached(p);
  ++version_;
  bits_.clear_page(p);
  set_count(p, 0);
  fixed_.assign(shown, 0);
  for (const auto& tree : weights_) {
    tree->set_run(slot(p, 0), fixed_);
  }
  Reached& reached = reached_[e];
  reached.end = std::max(reached.end, state_.episodes[e].begin + state_.pages[p].anchors);
  if (reached.page == p) {
    reached.page = kNone;
  }
}

void Drawable::look_again(Anchor anchor) {
  const auto [p, row] = anchor;
  const bool wanted = row < reached(p) && !kept_out(p, row);
  if (wanted == contains(anchor)) {
    return;
  }
  ++version_;
  if (wanted) {
    bits_.set(p, row);
  } else {
    bits_.clear(p, row);
  }
  set_count(p, wanted ? counts_[p] + 1 : counts_[p] - 1);
  for (const auto& tree : weights_) {
    set_weights(*tree, p, row, row + 1);
  }
}

// ---- weights ----

std::shared_ptr<const WeightTree> Drawable::weights(double alpha, bool with_least) {
  std::shared_ptr<WeightTree> tree = weights_.find(alpha);
  if (!tree) {
    tree = weights_.make(alpha, options_.num_slots(), state_.max_priority);
    set_all_weights(*tree);
  }
  if (with_least && !tree->least) {
    tree->least.emplace(tree->sums);
  }
  return tree;
}

void Drawable::set_all_weights(WeightTree& tree) {
  for (uint32_t p = 0; p < options_.num_pages; ++p) {
    set_weights(tree, p, 0, reached(p));
  }
}

void Drawable::set_weights(WeightTree& tree, uint32_t p, uint32_t from, uint32_t to) {
  const uint64_t first = slot(p, from);
  const uint32_t count = to - from;
  std::span<const float> priorities = std::span(slots_.priorities).subspan(first, count);
  if (lists_) {
    priorities_.resize(count);
    for (uint32_t i = 0; i < count; ++i) {
      priorities_[i] = bits_.test(p, from + i) ? priorities[i] : 0.0F;
    }
    priorities = priorities_;
  }
  fixed_.resize(count);
  state_.counters.saturated_weights += fixed_weights(priorities, tree.scale, fixed_);
  tree.set_run(first, fixed_);
}

void Drawable::follow_largest() {
  weights_.drop_unused();
  weights_.follow(state_.max_priority, [&](WeightTree& tree) { set_all_weights(tree); });
}

void Drawable::reweigh() {
  for (const auto& tree : weights_) {
    set_all_weights(*tree);
  }
}

void Drawable::updated(std::span<const Anchor> anchors, std::span<const float> priorities) {
  if (weights_.empty()) {
    return;
  }
  leaves_.clear();
  priorities_.clear();
  for (size_t i = 0; i < anchors.size(); ++i) {
    if (contains(anchors[i])) {
      leaves_.push_back(slot(anchors[i].page, anchors[i].row));
      priorities_.push_back(priorities[i]);
    }
  }
  fixed_.resize(leaves_.size());
  for (const auto& tree : weights_) {
    state_.counters.saturated_weights += fixed_weights(priorities_, tree->scale, fixed_);
    tree->set_each(leaves_, fixed_);
  }
}

}  // namespace gear::store

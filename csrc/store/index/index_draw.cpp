// What samplers see of the index: which steps and episodes are offered, and with what weight.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "store/index/index.h"

namespace gear::store {

bool Index::row_spent(uint64_t slot) const {
  return options_.max_times_sampled > 0 && state_.times_sampled[slot] >= options_.max_times_sampled;
}

float Index::priority(Anchor anchor) const { return std::fabs(state_.priorities[slot(anchor)]); }

bool Index::drawable(Anchor anchor) const {
  return anchor.row < state_.pages[anchor.page].anchors && !row_spent(slot(anchor));
}

bool Index::drawable(const Episode& episode) const {
  if (!ended(episode) || episode.head == kNone) {
    return false;
  }
  if (options_.max_times_sampled == 0) {
    return true;
  }
  if (episode.times_sampled >= options_.max_times_sampled) {
    return false;
  }
  for (uint32_t p = episode.head; p != kNone; p = state_.pages[p].next) {
    if (state_.pages[p].anchors > state_.pages[p].spent) {
      return true;
    }
  }
  return false;
}

uint32_t Index::nth_unspent(uint32_t page, uint64_t k) const {
  for (uint32_t row = 0; row < state_.pages[page].anchors; ++row) {
    if (!row_spent(slot({page, row})) && k-- == 0) {
      return row;
    }
  }
  GEAR_CHECK(!"a page has as many steps to draw as the tree counts");
  return 0;
}

void Index::drop_unused_trees() {
  std::erase_if(weight_trees_, [](const auto& weights) { return weights.use_count() == 1; });
}

std::shared_ptr<const SumTree> Index::weights(double alpha, Unit unit) {
  for (const auto& weights : weight_trees_) {
    if (weights->alpha == alpha && weights->unit == unit) {
      return {weights, &weights->tree};
    }
  }
  const uint64_t leaves = unit == Unit::kStep ? num_slots() : options_.num_pages;
  weight_trees_.push_back(std::make_shared<WeightTree>(WeightTree{alpha, unit, SumTree(leaves)}));
  const std::shared_ptr<WeightTree> made = weight_trees_.back();
  episode_priorities_used_ = episode_priorities_used_ || unit == Unit::kEpisode;
  for (uint32_t p = 0; p < options_.num_pages && unit == Unit::kStep; ++p) {
    set_weights(*made, p, 0, state_.pages[p].anchors);
  }
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh_episode(e);
  }
  return {made, &made->tree};
}

void Index::mark_sampled(Anchor anchor, Unit unit) {
  ++state_.counters.steps_sampled;
  if (options_.max_times_sampled == 0) {
    return;
  }
  const uint32_t e = state_.pages[anchor.page].episode;
  Episode& episode = state_.episodes[e];
  if (unit == Unit::kEpisode) {
    if (++episode.times_sampled < options_.max_times_sampled) {
      return;
    }
  } else {
    const uint64_t at = slot(anchor);
    if (++state_.times_sampled[at] < options_.max_times_sampled) {
      return;
    }
    Page& page = state_.pages[anchor.page];
    ++page.spent;
    anchors_.set(anchor.page, static_cast<uint64_t>(page.anchors - page.spent));
    for (const auto& weights : weight_trees_) {
      if (weights->unit == Unit::kStep) {
        weights->tree.set(at, 0);
      }
    }
  }
  ++version_;
  if (!ended(episode) || drawable(episode)) {
    return;
  }
  withdraw_episode(e);
  spent_episodes_.push_back(e);
}

void Index::release_spent() {
  for (uint32_t e : spent_episodes_) {
    while (state_.episodes[e].uid != 0) {
      evict_head_page(e);
    }
  }
  spent_episodes_.clear();
}

void Index::publish(uint32_t e) {
  Episode& episode = state_.episodes[e];
  uint64_t target = episode.end;
  if (!ended(episode)) {
    target -= std::min(target, state_.lookahead);
  }
  while (episode.anchors_end < target) {
    if (episode.publish == kNone) {
      episode.publish = episode.head;
    } else if (episode.anchors_end ==
               state_.pages[episode.publish].first_step + options_.page_steps) {
      episode.publish = state_.pages[episode.publish].next;
    }
    const uint64_t first = state_.pages[episode.publish].first_step;
    const uint64_t stop = std::min(target, first + options_.page_steps);
    publish_rows(episode.publish, static_cast<uint32_t>(episode.anchors_end - first),
                 static_cast<uint32_t>(stop - first));
    episode.anchors_end = stop;
  }
}

void Index::publish_rows(uint32_t p, uint32_t from, uint32_t to) {
  Page& page = state_.pages[p];
  GEAR_CHECK(page.anchors == from);
  page_changes(p);
  drop_unused_trees();
  ++version_;
  page.anchors = static_cast<uint16_t>(to);
  const uint64_t first = slot({p, from});
  for (uint64_t at = first; at < first + (to - from); ++at) {
    if (row_spent(at)) {
      ++page.spent;
    }
    state_.priorities[at] = std::fabs(state_.priorities[at]);
  }
  anchors_.set(p, static_cast<uint64_t>(page.anchors - page.spent));
  for (const auto& weights : weight_trees_) {
    if (weights->unit == Unit::kStep) {
      set_weights(*weights, p, from, to);
    }
  }
}

void Index::set_weights(WeightTree& weights, uint32_t p, uint32_t from, uint32_t to) {
  const uint64_t first = slot({p, from});
  const float* stored = &state_.priorities[first];
  taken_priorities_.assign(stored, stored + (to - from));
  for (uint32_t i = 0; i < to - from; ++i) {
    if (row_spent(first + i)) {
      taken_priorities_[i] = 0.0F;  // not counted as saturated
    }
  }
  const std::span<uint64_t> fresh = fixed(taken_priorities_, weights.alpha, weights.tree);
  for (uint32_t i = 0; i < to - from; ++i) {
    if (row_spent(first + i)) {
      fresh[i] = 0;
    }
  }
  weights.tree.set_run(first, fresh);
}

void Index::hide_rows(uint32_t p, uint32_t from) {
  Page& page = state_.pages[p];
  const uint64_t first = slot({p, from});
  const uint64_t count = uint64_t{page.anchors} - from;
  page_changes(p);
  ++version_;
  for (uint64_t at = first; at < first + count; ++at) {
    if (row_spent(at)) {
      --page.spent;
    }
    state_.priorities[at] = -std::fabs(state_.priorities[at]);
  }
  page.anchors = static_cast<uint16_t>(from);
  anchors_.set(p, static_cast<uint64_t>(page.anchors - page.spent));
  std::fill_n(scratch_.begin(), count, 0);
  for (const auto& weights : weight_trees_) {
    if (weights->unit == Unit::kStep) {
      weights->tree.set_run(first, {scratch_.data(), count});
    }
  }
}

void Index::retract(uint32_t e, uint64_t target) {
  Episode& episode = state_.episodes[e];
  while (episode.anchors_end > target) {
    const Page& page = state_.pages[episode.publish];
    const uint64_t keep = std::max(target, page.first_step);
    hide_rows(episode.publish, static_cast<uint32_t>(keep - page.first_step));
    episode.anchors_end = keep;
    if (keep == page.first_step) {
      episode.publish = page.previous;
    }
  }
}

}  // namespace gear::store

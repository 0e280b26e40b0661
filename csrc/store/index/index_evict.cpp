// How the index gives up pages and episodes.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "store/index/fixed_point.h"
#include "store/index/index.h"

namespace gear::store {

bool Index::evictable(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  if (episode.head == kNone) {
    return false;
  }
  return ended(episode) || episode.head != episode.tail || !has_room(e);
}

uint32_t Index::victim(uint32_t requester) const {
  const auto oldest_evictable = [&] {
    uint32_t e = state_.oldest;
    while (e != kNone && !evictable(e)) {
      e = state_.episodes[e].newer;
    }
    return e;
  };
  switch (options_.evict) {
    case Evict::kFifo:
      return oldest_evictable();
    case Evict::kLifo:
      for (uint32_t e = state_.newest; e != kNone; e = state_.episodes[e].older) {
        if (ended(state_.episodes[e])) {
          return e;
        }
      }
      break;
    case Evict::kLowestPriority:
      if (!by_priority_.empty()) {
        return std::get<2>(*by_priority_.begin());
      }
      break;
  }
  return evictable(requester) ? requester : oldest_evictable();
}

uint32_t Index::next_free_page(uint32_t requester) {
  while (state_.free_pages.empty()) {
    const uint32_t e = victim(requester);
    if (e == kNone) {
      throw base::OutOfMemory(
          base::cat("[store] no page to evict: each of the ", options_.num_pages, " pages of ",
                    options_.page_steps,
                    " steps is the last one of an open episode; raise capacity, lower "
                    "page_steps or run fewer writers"));
    }
    evict_head_page(e);
  }
  return state_.free_pages.front();
}

void Index::drop_head_page(uint32_t e) {
  Episode& episode = state_.episodes[e];
  const uint32_t p = episode.head;
  Page& page = state_.pages[p];
  hide_rows(p, 0);
  withdraw_episode(e);
  episode_changes(e);
  const uint64_t steps = std::min(episode.end, page.first_step + page.rows) - page.first_step;
  const std::span<float> priorities(&state_.priorities[slot({p, 0})], page.rows);
  uint64_t sum = 0;
  for (uint64_t row = 0; row < steps; ++row) {
    sum += priority_units(std::fabs(priorities[row]));
  }
  episode.priority_sum -= sum;
  std::fill(priorities.begin(), priorities.end(), -0.0F);
  if (!state_.times_sampled.empty()) {
    std::fill_n(&state_.times_sampled[slot({p, 0})], page.rows, uint16_t{0});
  }
  state_.num_steps -= steps;
  state_.counters.steps_evicted += steps;
  episode.begin += steps;
  episode.anchors_end = std::max(episode.anchors_end, episode.begin);
  if (episode.publish == p) {
    episode.publish = kNone;
  }
  episode.head = page.next;
  if (page.next != kNone) {
    page_changes(page.next);
  }
  for (ChangeLog* log : logs_) {
    log->dropped(p);
  }
  (page.next == kNone ? episode.tail : state_.pages[page.next].previous) = kNone;
  const uint32_t generation = page.generation + 1;
  page = Page{};
  page.generation = generation;
  state_.free_pages.push_back(p);
  evicted_at_[p] = clock_;
}

void Index::evict_head_page(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  // Of an ended episode nothing is kept that could not be drawn: its closing step, spent steps.
  do {
    drop_head_page(e);
  } while (ended(episode) && episode.head != kNone &&
           (episode.begin == episode.end || !drawable(episode)));
  if (!ended(episode)) {
    return;
  }
  if (episode.head == kNone) {
    remove_episode(e);
  } else {
    refresh_episode(e);
  }
}

void Index::withdraw_episode(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  if (episode.head != kNone) {
    page_changes(episode.head);
    heads_.set(episode.head, 0);
    for (const auto& weights : weight_trees_) {
      if (weights->unit == Unit::kEpisode) {
        weights->tree.set(episode.head, 0);
      }
    }
  }
  if (priority_key_[e] >= 0) {
    by_priority_.erase({priority_key_[e], episode.uid, e});
    priority_key_[e] = -1.0;
  }
}

void Index::refresh_episode(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  if (!ended(episode) || episode.head == kNone) {
    return;
  }
  const double priority = episode_priority(episode);
  if (drawable(episode)) {
    if (!logs_.empty() && heads_[episode.head] == 0) {
      page_changes(episode.head);
    }
    heads_.set(episode.head, 1);
    const auto shown = static_cast<float>(priority);
    for (const auto& weights : weight_trees_) {
      if (weights->unit == Unit::kEpisode) {
        weights->tree.set(episode.head, fixed({&shown, 1}, weights->alpha, weights->tree)[0]);
      }
    }
  }
  if (options_.evict == Evict::kLowestPriority && priority_key_[e] != priority) {
    if (priority_key_[e] >= 0) {
      by_priority_.erase({priority_key_[e], episode.uid, e});
    }
    priority_key_[e] = priority;
    by_priority_.insert({priority, episode.uid, e});
  }
}

void Index::remove_episode(uint32_t e) {
  Episode& episode = state_.episodes[e];
  (episode.older == kNone ? state_.oldest : state_.episodes[episode.older].newer) = episode.newer;
  (episode.newer == kNone ? state_.newest : state_.episodes[episode.newer].older) = episode.older;
  episode_weight_changes(e);
  episode = Episode{};
  free_episodes_.push_back(e);
  --state_.num_episodes;
  ++version_;
}

}  // namespace gear::store

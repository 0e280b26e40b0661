#pragma once

#include "store/index/index.h"

namespace gear::store {

/// Whether an episode has a page with a free row.
inline bool has_room(const Index& index, uint32_t episode) {
  return episode != kNone &&
         index.page(index.episode(episode).tail).rows < index.options().page_steps;
}

/// What a checkpoint stores of an index.
inline SavedState saved_state(const Index& index) {
  const IndexState& state = index.state();
  const uint64_t page_steps = index.options().page_steps;
  SavedState saved;
  saved.state.pages = state.pages;
  saved.state.arrived = state.arrived;
  saved.state.episodes = state.episodes;
  saved.state.free_pages = state.free_pages;
  saved.state.oldest = state.oldest;
  saved.state.newest = state.newest;
  saved.state.next_uid = state.next_uid;
  saved.state.num_steps = state.num_steps;
  saved.state.num_episodes = state.num_episodes;
  saved.state.max_priority = state.max_priority;
  saved.state.counters = state.counters;
  for (const uint32_t p : used_pages(state)) {
    const auto add = [&](const auto& all, auto& some) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(p * page_steps);
      some.insert(some.end(), first, first + static_cast<ptrdiff_t>(page_steps));
    };
    add(state.priorities, saved.priorities);
    if (!state.times_sampled.empty()) {
      add(state.times_sampled, saved.times_sampled);
    }
  }
  return saved;
}

}  // namespace gear::store

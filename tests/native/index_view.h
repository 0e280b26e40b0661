#pragma once

#include "store/checkpoint/index_check.h"
#include "store/index/index.h"

namespace gear::store {

/// Whether an episode has a page with a free row.
inline bool has_room(const Index& index, uint32_t episode) {
  return episode != kNone &&
         index.page(index.episode(episode).tail).rows < index.options().page_steps;
}

/// What a checkpoint stores of each step.
inline Slots saved_slots(const Index& index) {
  const auto page_steps = static_cast<ptrdiff_t>(index.options().page_steps);
  Slots saved;
  const auto take = [&](const auto& all, auto& some) {
    for (const uint32_t p : used_pages(index.state())) {
      const auto first = all.begin() + p * page_steps;
      some.insert(some.end(), first, first + page_steps);
    }
  };
  take(index.slots().priorities, saved.priorities);
  if (!index.slots().times_sampled.empty()) {
    take(index.slots().times_sampled, saved.times_sampled);
  }
  return saved;
}

/// Throws as check_saved() unless the index may be saved as it is.
inline void check_index(const Index& index) {
  check_saved(index.options(), index.state(), saved_slots(index));
}

}  // namespace gear::store

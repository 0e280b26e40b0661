// What mirrors on GPUs need of the index: updates checked for them, and what they give back.
#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "store/index/fixed_point.h"
#include "store/index/index.h"
#include "store/index/update_check.h"

namespace gear::store {

std::string update_refusal(int64_t id, float priority, uint64_t position) {
  if (!is_priority(priority)) {
    return base::cat("[store] priority ", priority, " at position ", position,
                     ": a finite number, 0 or more, is allowed; nothing was updated");
  }
  return base::cat("[store] id ", id, " at position ", position,
                   " is not of this buffer: use ids of its own batches; nothing was updated");
}

uint64_t Index::check_update(std::span<const int64_t> ids,
                             std::span<const float> priorities) const {
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    store::check_update(ids[i], priorities[i], i, options_.owner, num_slots());
  }
  return static_cast<uint64_t>(std::count_if(ids.begin(), ids.end(), [&](int64_t id) {
    Anchor anchor{};
    return find(StepId::unpack(id), anchor);
  }));
}

void Index::take_priorities(uint64_t first_slot, std::span<const float> priorities) {
  GEAR_CHECK(first_slot + priorities.size() <= state_.priorities.size());
  float* stored = state_.priorities.data() + first_slot;
  for (size_t i = 0; i < priorities.size(); ++i) {
    stored[i] = std::copysign(priorities[i], stored[i]);
  }
}

void Index::settle(const Settlement& settlement) {
  state_.max_priority = settlement.max_priority;
  state_.counters.stale_updates += settlement.stale_updates;
  drop_unused_trees();
  // The weights of the trees are computed anew; what saturates was counted where it was updated.
  const uint64_t saturated = state_.counters.saturated_weights;
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    Episode& episode = state_.episodes[e];
    episode.weight = settlement.episode_weights[e];
    episode.priority_sum = 0;
    for (uint32_t p = episode.head; p != kNone; p = state_.pages[p].next) {
      const Page& page = state_.pages[p];
      const uint64_t first = slot({p, 0});
      const uint64_t steps = std::min<uint64_t>(page.rows, episode.end - page.first_step);
      for (uint64_t row = 0; row < steps; ++row) {
        episode.priority_sum += priority_units(std::fabs(state_.priorities[first + row]));
      }
      for (const auto& weights : weight_trees_) {
        if (weights->unit == Unit::kStep) {
          set_weights(*weights, p, 0, page.anchors);
        }
      }
    }
    refresh_episode(e);
  }
  state_.counters.saturated_weights = saturated;
}

}  // namespace gear::store

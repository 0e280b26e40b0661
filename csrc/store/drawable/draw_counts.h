#pragma once

#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// How often steps, and episodes as a whole, were drawn, where that is limited: a draw counts at
/// once, and is in flight until its batch is delivered or gives it back. Without max_times_sampled
/// nothing is counted.
/// Cost: O(1) a call; with max_times_sampled 16 bytes an episode and 4 a step.
class DrawCounts {
 public:
  /// Works on `state` and `slots`, which outlive it.
  DrawCounts(const IndexOptions& options, IndexState& state, Slots& slots);

  uint64_t bytes() const {
    return episodes_.size() * sizeof(InFlight) + in_flight_.size() * sizeof(uint16_t);
  }
  bool limited() const { return options_.max_times_sampled > 0; }
  /// Whether the step was drawn as often as it may be.
  bool spent(uint64_t slot) const {
    return limited() && slots_.times_sampled[slot] >= options_.max_times_sampled;
  }
  bool episode_spent(uint32_t episode) const {
    return limited() && state_.episodes[episode].times_sampled >= options_.max_times_sampled;
  }
  /// Draws in flight of the episode's stored steps and of itself as a whole.
  uint64_t in_flight(uint32_t episode) const {
    return limited() ? episodes_[episode].of_steps + episodes_[episode].as_episode : 0;
  }
  /// How often a step, or an episode as a whole, was drawn and delivered.
  uint16_t times_delivered(uint64_t slot) const {
    return static_cast<uint16_t>(slots_.times_sampled[slot] - in_flight_[slot]);
  }
  uint32_t episode_times_delivered(uint32_t episode) const {
    const uint32_t times = state_.episodes[episode].times_sampled;
    return limited() ? times - episodes_[episode].as_episode : times;
  }

  void opened(uint32_t episode);
  /// With max_times_sampled alone, as all that follow: one draw of the step, or of the episode that
  /// it is of.
  void sampled(Anchor anchor, Unit unit);
  /// The draw is in flight no more; or, given back, never was.
  void delivered(Anchor anchor, Unit unit);
  void given_back(Anchor anchor, Unit unit);
  /// Before the head page of an episode goes.
  void drop(uint32_t page);

 private:
  struct InFlight {
    uint64_t of_steps = 0;
    uint32_t as_episode = 0;
  };

  uint64_t slot(Anchor anchor) const { return anchor.page * options_.page_steps + anchor.row; }

  const IndexOptions& options_;
  IndexState& state_;
  Slots& slots_;
  std::vector<InFlight> episodes_;
  std::vector<uint16_t> in_flight_;  // by slot
};

}  // namespace gear::store

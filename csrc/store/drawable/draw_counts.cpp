#include "store/drawable/draw_counts.h"

#include <utility>

namespace gear::store {

DrawCounts::DrawCounts(const IndexOptions& options, IndexState& state, Slots& slots)
    : options_(options), state_(state), slots_(slots) {
  if (limited()) {
    episodes_.resize(state.episodes.size());
    in_flight_.resize(options.num_slots());
  }
}

void DrawCounts::opened(uint32_t e) {
  if (!limited()) {
    return;
  }
  if (e >= episodes_.size()) {
    episodes_.resize(e + 1);
  }
  episodes_[e] = {};
}

void DrawCounts::sampled(Anchor anchor, Unit unit) {
  const uint32_t e = state_.pages[anchor.page].episode;
  if (unit == Unit::kEpisode) {
    ++state_.episodes[e].times_sampled;
    ++episodes_[e].as_episode;
  } else {
    ++slots_.times_sampled[slot(anchor)];
    ++in_flight_[slot(anchor)];
    ++episodes_[e].of_steps;
  }
}

void DrawCounts::delivered(Anchor anchor, Unit unit) {
  const uint32_t e = state_.pages[anchor.page].episode;
  if (unit == Unit::kEpisode) {
    --episodes_[e].as_episode;
  } else {
    --in_flight_[slot(anchor)];
    --episodes_[e].of_steps;
  }
}

void DrawCounts::given_back(Anchor anchor, Unit unit) {
  delivered(anchor, unit);
  if (unit == Unit::kEpisode) {
    --state_.episodes[state_.pages[anchor.page].episode].times_sampled;
  } else {
    --slots_.times_sampled[slot(anchor)];
  }
}

void DrawCounts::drop(uint32_t p) {
  if (!limited()) {
    return;
  }
  const Page& page = state_.pages[p];
  uint64_t& of_steps = episodes_[page.episode].of_steps;
  for (uint32_t row = 0; row < page.anchors && of_steps > 0; ++row) {
    of_steps -= std::exchange(in_flight_[slot({p, row})], uint16_t{0});
  }
}

}  // namespace gear::store

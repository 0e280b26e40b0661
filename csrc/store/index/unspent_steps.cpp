#include "store/index/unspent_steps.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"

namespace gear::store {

UnspentSteps::UnspentSteps(const IndexOptions& options, IndexState& state)
    : options_(options), state_(state) {
  if (!limited()) {
    return;
  }
  pages_.resize(options.num_pages);
  episodes_.resize(state.episodes.size());
  in_flight_.resize(options.num_slots());
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    for (uint32_t p = state.episodes[e].head; p != kNone; p = state.pages[p].next) {
      state.pages[p].spent = static_cast<uint16_t>(count_spent(p, 0, state.pages[p].anchors));
      appended(p, 0);
    }
  }
}

uint32_t UnspentSteps::count_spent(uint32_t p, uint32_t from, uint32_t to) const {
  uint32_t count = 0;
  for (uint32_t row = from; row < to && limited(); ++row) {
    count += spent(slot(p, row)) ? 1 : 0;
  }
  return count;
}

void UnspentSteps::opened(uint32_t e) {
  if (!limited()) {
    return;
  }
  if (e >= episodes_.size()) {
    episodes_.resize(e + 1);
  }
  episodes_[e] = {};
}

void UnspentSteps::appended(uint32_t p, uint32_t from) {
  if (!limited()) {
    return;
  }
  const Page& page = state_.pages[p];
  EpisodeSteps& steps = episodes_[page.episode];
  PageSteps& own = pages_[p];
  uint32_t to = page.anchors;
  while (to > from && spent(slot(p, to - 1))) {
    --to;
  }
  while (from < to && spent(slot(p, from))) {
    ++from;
  }
  if (from == to) {
    return;
  }
  steps.count += to - from - count_spent(p, from, to);
  if (own.begin == own.end) {
    own = {steps.last, kNone, static_cast<uint16_t>(from), 0};
    (steps.last == kNone ? steps.first : pages_[steps.last].next) = p;
    steps.last = p;
  }
  own.end = static_cast<uint16_t>(to);
}

bool UnspentSteps::sampled(Anchor anchor) {
  const uint64_t at = slot(anchor.page, anchor.row);
  ++in_flight_[at];
  ++episodes_[state_.pages[anchor.page].episode].steps_in_flight;
  if (++state_.times_sampled[at] != options_.max_times_sampled) {
    return false;
  }
  Page& page = state_.pages[anchor.page];
  ++page.spent;
  --episodes_[page.episode].count;
  PageSteps& own = pages_[anchor.page];
  if (page.spent == page.anchors) {
    unlink(anchor.page);
    return true;
  }
  while (own.begin < own.end && spent(slot(anchor.page, own.begin))) {
    ++own.begin;
  }
  while (own.end > own.begin && spent(slot(anchor.page, own.end - 1U))) {
    --own.end;
  }
  GEAR_CHECK(own.begin < own.end);
  return true;
}

void UnspentSteps::delivered(Anchor anchor) {
  --in_flight_[slot(anchor.page, anchor.row)];
  --episodes_[state_.pages[anchor.page].episode].steps_in_flight;
}

bool UnspentSteps::given_back(Anchor anchor) {
  delivered(anchor);
  if (state_.times_sampled[slot(anchor.page, anchor.row)]-- != options_.max_times_sampled) {
    return false;
  }
  Page& page = state_.pages[anchor.page];
  --page.spent;
  ++episodes_[page.episode].count;
  PageSteps& own = pages_[anchor.page];
  const auto row = static_cast<uint16_t>(anchor.row);
  if (own.begin == own.end) {
    link(anchor.page);
    own.begin = row;
  }
  own.begin = std::min(own.begin, row);
  own.end = std::max(own.end, static_cast<uint16_t>(row + 1));
  return true;
}

void UnspentSteps::episode_sampled(uint32_t e) {
  ++state_.episodes[e].times_sampled;
  ++episodes_[e].times_in_flight;
}

void UnspentSteps::episode_given_back(uint32_t e) {
  --state_.episodes[e].times_sampled;
  --episodes_[e].times_in_flight;
}

// In time order: most often before the first, where a queue took it, or behind the last.
void UnspentSteps::link(uint32_t p) {
  EpisodeSteps& steps = episodes_[state_.pages[p].episode];
  uint32_t before = steps.last;
  if (steps.first != kNone && state_.pages[p].first_step < state_.pages[steps.first].first_step) {
    before = kNone;
  } else if (before != kNone && state_.pages[p].first_step < state_.pages[before].first_step) {
    before = state_.pages[p].previous;
    while (pages_[before].begin == pages_[before].end) {
      before = state_.pages[before].previous;
    }
  }
  PageSteps& own = pages_[p];
  own.previous = before;
  own.next = before == kNone ? steps.first : pages_[before].next;
  (own.previous == kNone ? steps.first : pages_[own.previous].next) = p;
  (own.next == kNone ? steps.last : pages_[own.next].previous) = p;
}

void UnspentSteps::unlink(uint32_t p) {
  PageSteps& own = pages_[p];
  EpisodeSteps& steps = episodes_[state_.pages[p].episode];
  (own.previous == kNone ? steps.first : pages_[own.previous].next) = own.next;
  (own.next == kNone ? steps.last : pages_[own.next].previous) = own.previous;
  own = {};
}

void UnspentSteps::drop(uint32_t p) {
  if (!limited()) {
    return;
  }
  const Page& page = state_.pages[p];
  EpisodeSteps& steps = episodes_[page.episode];
  steps.count -= static_cast<uint64_t>(page.anchors - page.spent);
  for (uint32_t row = 0; row < page.anchors && steps.steps_in_flight > 0; ++row) {
    steps.steps_in_flight -= std::exchange(in_flight_[slot(p, row)], uint16_t{0});
  }
  if (pages_[p].begin < pages_[p].end) {
    unlink(p);
  }
}

}  // namespace gear::store

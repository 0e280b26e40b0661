#pragma once

#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// Which steps were not yet sampled max_times_sampled times, episode by episode: for each the
/// pages that still hold any, in time order. A queue or a stack walks those alone, however much is
/// spent before, between or behind them. Without max_times_sampled all pages hold some.
/// A draw counts at once, and is in flight until its batch is delivered or gives it back.
/// Cost: O(1) a call, and O(1) amortised a spent step; where a page comes back between others, a
/// look at those before it. With max_times_sampled 16 bytes a page and 2 a step.
class UnspentSteps {
 public:
  /// Works on `state`, which outlives it; counts Page::spent anew.
  UnspentSteps(const IndexOptions& options, IndexState& state);

  uint64_t bytes() const {
    return pages_.size() * sizeof(PageSteps) + episodes_.size() * sizeof(EpisodeSteps) +
           in_flight_.size() * sizeof(uint16_t);
  }
  bool spent(uint64_t slot) const {
    return limited() && state_.times_sampled[slot] >= options_.max_times_sampled;
  }
  /// Of the rows [from, to) of a page.
  uint32_t count_spent(uint32_t page, uint32_t from, uint32_t to) const;
  /// Whether the episode holds an unspent step.
  bool any(uint32_t episode) const {
    return limited() ? episodes_[episode].count > 0
                     : state_.episodes[episode].begin < state_.episodes[episode].end;
  }

  /// Draws in flight of the episode's stored steps and of itself as a whole.
  uint64_t in_flight(uint32_t episode) const {
    return limited() ? episodes_[episode].steps_in_flight + episodes_[episode].times_in_flight : 0;
  }
  /// How often a step, or an episode as a whole, was drawn and delivered.
  uint16_t times_delivered(uint64_t slot) const {
    return static_cast<uint16_t>(state_.times_sampled[slot] - in_flight_[slot]);
  }
  uint32_t episode_times_delivered(uint32_t episode) const {
    const uint32_t times = state_.episodes[episode].times_sampled;
    return limited() ? times - episodes_[episode].times_in_flight : times;
  }

  /// The first (last) page of an episode with an unspent step, and the next (previous) one after
  /// such a page; kNone at the end.
  uint32_t first(uint32_t episode) const {
    return limited() ? episodes_[episode].first : state_.episodes[episode].head;
  }
  uint32_t last(uint32_t episode) const {
    return limited() ? episodes_[episode].last : state_.episodes[episode].tail;
  }
  uint32_t next(uint32_t page) const {
    return limited() ? pages_[page].next : state_.pages[page].next;
  }
  uint32_t previous(uint32_t page) const {
    return limited() ? pages_[page].previous : state_.pages[page].previous;
  }
  /// Rows outside [begin, end) of such a page are spent.
  uint32_t begin(uint32_t page) const { return limited() ? pages_[page].begin : 0; }
  uint32_t end(uint32_t page) const {
    return limited() ? pages_[page].end : state_.pages[page].anchors;
  }

  void opened(uint32_t episode);
  /// Rows [from, page.anchors) were appended to the tail page of an episode.
  void appended(uint32_t page, uint32_t from);
  /// Counts a draw of the step; true when that was its last.
  bool sampled(Anchor anchor);
  /// A draw of the step is in flight no more.
  void delivered(Anchor anchor);
  /// The same where it does not count; true when the step was spent by it.
  bool given_back(Anchor anchor);
  /// The three for an episode as a whole.
  void episode_sampled(uint32_t episode);
  void episode_delivered(uint32_t episode) { --episodes_[episode].times_in_flight; }
  void episode_given_back(uint32_t episode);
  /// Before the head page of an episode goes.
  void drop(uint32_t page);

 private:
  struct PageSteps {
    uint32_t previous = kNone;
    uint32_t next = kNone;
    uint16_t begin = 0;
    uint16_t end = 0;  // begin == end: not in the list
  };
  struct EpisodeSteps {
    uint64_t count = 0;
    uint32_t first = kNone;
    uint32_t last = kNone;
    uint32_t times_in_flight = 0;  // as an episode
    uint64_t steps_in_flight = 0;
  };

  bool limited() const { return options_.max_times_sampled > 0; }
  uint64_t slot(uint32_t page, uint32_t row) const { return page * options_.page_steps + row; }
  void unlink(uint32_t page);
  void link(uint32_t page);

  const IndexOptions& options_;
  IndexState& state_;
  std::vector<PageSteps> pages_;
  std::vector<EpisodeSteps> episodes_;
  std::vector<uint16_t> in_flight_;  // by slot
};

}  // namespace gear::store

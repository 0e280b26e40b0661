#pragma once

#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// Which steps were not yet sampled max_times_sampled times, episode by episode: for each the
/// pages that still hold any, in time order. A queue or a stack walks those alone, however much is
/// spent before, between or behind them. Without max_times_sampled all pages hold some.
/// Cost: O(1) a call, and O(1) amortised a spent step; 16 bytes a page with max_times_sampled.
class UnspentSteps {
 public:
  /// Works on `state`, which outlives it; counts Page::spent anew.
  UnspentSteps(const IndexOptions& options, IndexState& state);

  uint64_t bytes() const {
    return pages_.size() * sizeof(PageSteps) + episodes_.size() * sizeof(EpisodeSteps);
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
  };

  bool limited() const { return options_.max_times_sampled > 0; }
  uint64_t slot(uint32_t page, uint32_t row) const { return page * options_.page_steps + row; }
  void unlink(uint32_t page);

  const IndexOptions& options_;
  IndexState& state_;
  std::vector<PageSteps> pages_;
  std::vector<EpisodeSteps> episodes_;
};

}  // namespace gear::store

#pragma once

#include <set>
#include <tuple>
#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// Which pages hold an episode's steps, in what order episodes were created and pages were filled,
/// which pages are free, and which page is given up next. Knows nothing of what may be drawn. Every
/// episode has a page.
///
///     oldest ─ episode ─ episode ─ newest        free: page, page, ...
///                 │
///                head ─ page ─ page ─ tail
class PageChains {
 public:
  /// Works on `state`, which outlives it and agrees with itself.
  PageChains(const IndexOptions& options, IndexState& state);

  uint64_t bytes() const {
    return evicted_at_.size() * (sizeof(uint64_t) + sizeof(Neighbours) + sizeof(uint64_t));
  }
  /// The episode whose head page goes next, kNone if there is none. `requester` (kNone: one that
  /// has yet to open) needs the page: it alone may give up the only one that it has, once that is
  /// full. Cost: O(1) amortised, and for each page that may go before those that it was behind, a
  /// look at those of them that may not.
  uint32_t victim(uint32_t requester);

  /// An episode, which attach() has to give a page.
  uint32_t open();
  /// See Index::adopt_episode.
  uint32_t adopt(uint64_t uid);
  /// Appends the next free page, which must exist, to the episode; returns it.
  uint32_t attach(uint32_t episode);
  /// The episode, all of whose pages may go from here on, has ended.
  void ended(uint32_t episode) { let_go(state_.episodes[episode].head); }
  /// Frees the head page with its steps. Their priorities are taken out of the episode's sum.
  void drop_head(uint32_t episode);
  /// Frees the episode, which has no page.
  void remove(uint32_t episode);
  /// Puts the ended episode into the order of Evict::kLowestPriority, or (negative) out of it.
  void rank(uint32_t episode, double priority);

  /// Moves the clock on by one; returns its value.
  uint64_t tick() { return ++clock_; }
  /// The clock's value when the page was last evicted; 0 for never.
  uint64_t evicted_at(uint32_t page) const { return evicted_at_[page]; }

 private:
  struct Neighbours {
    uint32_t older = kNone;
    uint32_t newer = kNone;
  };

  bool may_go(uint32_t page) const;
  uint32_t oldest_that_may_go();
  bool gives_up_its_only(uint32_t episode) const;
  void let_go(uint32_t page);
  void link(uint32_t page);
  void unlink(uint32_t page);

  const IndexOptions& options_;
  IndexState& state_;
  std::vector<uint32_t> free_episodes_;
  std::vector<uint64_t> evicted_at_;  // by page
  uint64_t clock_ = 0;
  // The pages in use, by the order in which they were filled.
  std::vector<Neighbours> neighbours_;  // by page
  uint32_t newest_page_ = kNone;
  uint32_t candidate_ = kNone;  // none before it may go; kNone: none at all
  uint64_t next_arrival_ = 1;
  // Ended episodes by (priority, uid): kept only for Evict::kLowestPriority.
  std::set<std::tuple<double, uint64_t, uint32_t>> by_priority_;
  std::vector<double> priority_key_;  // under which an episode stands there; negative: it does not
};

}  // namespace gear::store

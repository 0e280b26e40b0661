#pragma once

#include <set>
#include <tuple>
#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// Which pages hold an episode's steps, in what order episodes were created, which pages are free,
/// and which page is given up next. Knows nothing of what may be drawn.
///
///     oldest ─ episode ─ episode ─ newest        free: page, page, ...
///                 │
///                head ─ page ─ page ─ tail
class PageChains {
 public:
  /// Works on `state`, which outlives it and agrees with itself.
  PageChains(const IndexOptions& options, IndexState& state);

  uint64_t bytes() const { return evicted_at_.size() * sizeof(uint64_t); }
  /// The episode whose head page goes next, kNone if there is none. `requester` needs the page.
  uint32_t victim(uint32_t requester) const;

  uint32_t open();
  /// See Index::adopt_episode.
  uint32_t adopt(uint64_t uid);
  /// Appends the next free page, which must exist, to the episode; returns it.
  uint32_t attach(uint32_t episode);
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
  bool has_room(uint32_t episode) const;
  bool evictable(uint32_t episode) const;
  uint32_t oldest_evictable() const;

  const IndexOptions& options_;
  IndexState& state_;
  std::vector<uint32_t> free_episodes_;
  std::vector<uint64_t> evicted_at_;  // by page
  uint64_t clock_ = 0;
  // Ended episodes by (priority, uid): kept only for Evict::kLowestPriority.
  std::set<std::tuple<double, uint64_t, uint32_t>> by_priority_;
  std::vector<double> priority_key_;  // under which an episode stands there; negative: it does not
};

}  // namespace gear::store

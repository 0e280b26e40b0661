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
  /// Who needs a page, and for what: a closing step does not take the place of the steps before it.
  struct Need {
    uint32_t episode = kNone;  ///< kNone: one that is yet to open
    bool closing = false;
  };
  /// The episode whose head page goes next, kNone if there is none. Who needs it for a step alone
  /// may give up the only one that it has, once that is full: under kFifo where its steps are the
  /// oldest, else where no other may go. Cost: O(log episodes), under kFifo O(1) amortised, and for
  /// each page that may go before those that it was behind, a look at those of them that may not.
  uint32_t victim(const Need& need);

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
  /// Puts the ended episode into the order of Evict::kLowestPriority or kLifo, or (negative) out of
  /// it.
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
  bool gives_up_its_only(const Need& need) const;
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
  // Ended episodes, by (priority, uid) or (0, uid): for Evict::kLowestPriority and kLifo.
  std::set<std::tuple<double, uint64_t, uint32_t>> ranked_;
  std::vector<double> priority_key_;  // under which an episode stands there; negative: it does not
};

}  // namespace gear::store

#pragma once

#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// Which pages hold an episode's steps, in what order episodes were created and pages were filled,
/// which pages are free, and which page is given up next. Knows nothing of what may be drawn. Every
/// episode has a page. What takes or frees a page costs O(log num_pages).
///
///     oldest ─ episode ─ episode ─ newest        free: page, page, ...
///                 │
///                head ─ page ─ page ─ tail
class PageChains {
 public:
  /// Works on `state`, which agrees with itself, and on `slots`, which both outlive it.
  PageChains(const IndexOptions& options, IndexState& state, Slots& slots);

  uint64_t bytes() const {
    constexpr uint64_t kNode = 4 * sizeof(void*);  // of a set, without its element
    return evicted_at_.size() * 2 * sizeof(uint64_t) +
           going_.size() * (kNode + sizeof(*going_.begin())) +
           ranked_.size() * (kNode + sizeof(*ranked_.begin()));
  }
  /// Who needs a page, and for what: a closing step does not take the place of the steps before it.
  struct Need {
    uint32_t episode = kNone;  ///< kNone: one that is yet to open
    bool closing = false;
  };
  /// The episode whose head page goes next, kNone if there is none. Who needs it for a step alone
  /// may give up the only one that it has, once that is full: under kFifo where its steps are the
  /// oldest, else where no other may go. O(1).
  uint32_t victim(const Need& need) const;
  /// How many episodes are open: each keeps a page, so that num_pages of them are the most.
  uint64_t num_open() const { return num_open_; }

  /// An episode, which attach() has to give a page.
  uint32_t open();
  /// See Index::adopt_episode.
  uint32_t adopt(uint64_t uid);
  /// Appends the next free page, which must exist, to the episode; returns it.
  uint32_t attach(uint32_t episode);
  /// The episode, all of whose pages may go from here on, has ended.
  void ended(uint32_t episode);
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
  bool gives_up_its_only(const Need& need) const;
  // If the episode can do without its head page, that may go from here on.
  void let_go_of_head(uint32_t episode);
  // It goes.
  void take_out(uint32_t page);

  const IndexOptions& options_;
  IndexState& state_;
  Slots& slots_;
  std::vector<uint32_t> free_episodes_;
  std::vector<uint64_t> evicted_at_;  // by page
  uint64_t clock_ = 0;
  uint64_t next_arrival_ = 1;
  uint64_t num_open_ = 0;
  // Head pages that may go, by the order in which pages were filled. Most often the first one goes,
  // and the next of its episode comes to its place, in the memory that it had.
  using Going = std::set<std::pair<uint64_t, uint32_t>>;
  Going going_;
  Going::node_type taken_;
  // Ended episodes, by (priority, uid) or (0, uid): for Evict::kLowestPriority and kLifo.
  std::set<std::tuple<double, uint64_t, uint32_t>> ranked_;
  std::vector<double> priority_key_;  // under which an episode stands there; negative: it does not
};

}  // namespace gear::store

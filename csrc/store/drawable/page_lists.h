#pragma once

#include <vector>

#include "store/index/index_state.h"

namespace gear::store {

/// For each episode its pages that hold a step to draw, in time order: a queue or a stack walks
/// those alone, however much is spent or kept out before, between or behind them.
/// Cost: O(1) a call; where a page comes back between others, a look at those before it. 12 bytes
/// a page and 8 an episode.
class PageLists {
 public:
  PageLists(const IndexOptions& options, const IndexState& state)
      : state_(state), pages_(options.num_pages), episodes_(state.episodes.size()) {}

  uint64_t bytes() const {
    return pages_.size() * sizeof(Listed) + episodes_.size() * sizeof(Ends);
  }
  /// The first (last) page of an episode's list, and the next (previous) one after a page of it;
  /// kNone at the end.
  uint32_t first(uint32_t episode) const { return episodes_[episode].first; }
  uint32_t last(uint32_t episode) const { return episodes_[episode].last; }
  uint32_t next(uint32_t page) const { return pages_[page].next; }
  uint32_t previous(uint32_t page) const { return pages_[page].previous; }

  void opened(uint32_t episode);
  /// A page of an episode that is not on its list.
  void add(uint32_t page);
  /// One that is.
  void remove(uint32_t page);

 private:
  struct Listed {
    uint32_t previous = kNone;
    uint32_t next = kNone;
    bool listed = false;
  };
  struct Ends {
    uint32_t first = kNone;
    uint32_t last = kNone;
  };

  uint32_t listed_before(uint32_t page) const;

  const IndexState& state_;
  std::vector<Listed> pages_;
  std::vector<Ends> episodes_;
};

}  // namespace gear::store

#pragma once

#include "select/selection.h"

namespace gear::select {

/// Walks what may be drawn in content order: episodes in creation order, steps in time order.
/// Valid while the index does not change. Cost: O(1) a step, O(1) a page without any.
class Walk {
 public:
  enum class From : uint8_t { kOldest, kNewest };

  Walk(const store::Index& index, store::Unit unit, From from)
      : index_(&index), unit_(unit), forward_(from == From::kOldest) {
    episode_ = forward_ ? index.state().oldest : index.state().newest;
    enter_episode();
  }

  /// The next one, or false at the end.
  bool next(store::Anchor& anchor) {
    while (episode_ != store::kNone) {
      if (unit_ == store::Unit::kEpisode) {
        const store::Episode& episode = index_->episode(episode_);
        leave_episode();
        if (!index_->drawable(episode)) {
          continue;
        }
        anchor = {episode.head, 0};
        return true;
      }
      while (page_ != store::kNone) {
        const store::Page& page = index_->page(page_);
        while (taken_ < page.anchors) {
          const uint32_t row = forward_ ? taken_ : page.anchors - 1 - taken_;
          ++taken_;
          if (!index_->drawable(store::Anchor{page_, row})) {
            continue;
          }
          anchor = {page_, row};
          return true;
        }
        page_ = forward_ ? page.next : page.previous;
        taken_ = 0;
      }
      leave_episode();
    }
    return false;
  }

 private:
  void enter_episode() {
    if (episode_ == store::kNone) {
      return;
    }
    const store::Episode& episode = index_->episode(episode_);
    page_ = forward_ ? episode.head : episode.tail;
    taken_ = 0;
  }

  void leave_episode() {
    const store::Episode& episode = index_->episode(episode_);
    episode_ = forward_ ? episode.newer : episode.older;
    enter_episode();
  }

  const store::Index* index_;
  store::Unit unit_;
  bool forward_;
  uint32_t episode_ = store::kNone;
  uint32_t page_ = store::kNone;
  uint32_t taken_ = 0;  ///< rows of page_ looked at
};

}  // namespace gear::select

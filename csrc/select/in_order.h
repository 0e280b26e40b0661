#pragma once

#include <optional>

#include "select/walk.h"

namespace gear::select {

/// Items of a shard by their place in content order, a batch after the other: where the walk stands
/// is kept. Cost: O(1) an item, and as many steps as lie before the first one asked for.
class InOrder {
 public:
  explicit InOrder(store::Unit unit) : unit_(unit) {}

  /// Before the content changes.
  void reset() { walk_.reset(); }

  /// Appends items [first, first + count).
  void add(const store::Index& index, uint64_t first, uint64_t count, float probability,
           Selection& out) {
    store::Anchor anchor{};
    if (!walk_ || next_ != first) {
      walk_.emplace(index, unit_, Walk::From::kOldest);
      for (next_ = 0; next_ < first; ++next_) {
        walk_->next(anchor);
      }
    }
    for (; next_ < first + count && walk_->next(anchor); ++next_) {
      out.add(anchor, probability);
    }
  }

 private:
  store::Unit unit_;
  std::optional<Walk> walk_;
  uint64_t next_ = 0;  ///< place of the item that the walk comes to next
};

}  // namespace gear::select

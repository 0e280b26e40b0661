#pragma once

#include <span>
#include <vector>

#include "select/sampler.h"

namespace gear::select {

/// The items of a shard with the largest priorities, largest first, the lower slot first among
/// equals. Cost: one scan of the priorities (4 bytes a step; about 0.3 ms per million) with a heap
/// of `count`.
class Best {
 public:
  struct Item {
    double priority;
    store::Anchor anchor;

    /// Better items sort first.
    bool operator<(const Item& other) const {
      if (priority != other.priority) {
        return priority > other.priority;
      }
      if (anchor.page != other.anchor.page) {
        return anchor.page < other.anchor.page;
      }
      return anchor.row < other.anchor.row;
    }
  };

  Best(const SamplerOptions& options, store::Index& index)
      : steps_(drawable_steps(options, index)) {}

  /// Up to `count`; valid until the next call.
  std::span<const Item> find(const store::Index& index, uint64_t count);

 private:
  void offer(Item item, uint64_t count);
  void scan_steps(const store::Index& index, uint64_t count);
  void scan_episodes(const store::Index& index, uint64_t count);

  std::shared_ptr<store::Drawable> steps_;
  std::vector<Item> items_;  // while it is searched for: a heap whose front is the worst one kept
};

}  // namespace gear::select

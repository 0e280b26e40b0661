#pragma once

#include <memory>
#include <optional>

#include "select/sampler.h"

namespace gear::select {

/// Walks what may be drawn in content order: episodes in creation order, steps in time order.
/// Valid while the index does not change. Cost: O(1) an item, and a look at each episode without
/// any on the way; pages where nothing is left are passed over.
class Walk {
 public:
  enum class From : uint8_t { kOldest, kNewest };

  /// Of these steps, or (null) of episodes as a whole.
  Walk(const store::Index& index, const store::Drawable* steps, From from);

  /// The next one, or false at the end.
  bool next(store::Anchor& anchor);
  /// Whether the episode that it comes to next is gone, which can be without a change of what may
  /// be drawn where none of its steps could be.
  bool lost() const { return episode_ != store::kNone && index_->episode(episode_).uid != uid_; }
  /// Rows, pages and episodes looked at so far.
  uint64_t visited() const { return visited_; }

 private:
  void enter_episode();
  void enter_page();
  // The next row of page_, or false.
  bool next_row(store::Anchor& anchor);

  const store::Index* index_;
  const store::Drawable* steps_;
  bool forward_;
  uint32_t episode_ = store::kNone;
  uint64_t uid_ = 0;  // its
  uint32_t page_ = store::kNone;
  uint32_t row_ = 0;  // of page_ rows from this one on are left, or, from the newest, before it
  uint64_t visited_ = 0;
};

/// Items of a shard by their place in content order, a batch after the other: where the walk stands
/// is kept. Cost: O(1) an item, and as many steps as lie before the first one asked for.
class InOrder {
 public:
  InOrder(const SamplerOptions& options, store::Index& index)
      : steps_(drawable_steps(options, index)) {}

  /// Before the content changes.
  void reset() { walk_.reset(); }
  /// Appends items [first, first + count).
  void add(const store::Index& index, uint64_t first, uint64_t count, float probability,
           Selection& out);

 private:
  std::shared_ptr<store::Drawable> steps_;
  std::optional<Walk> walk_;
  uint64_t next_ = 0;  // place of the item that the walk comes to next
};

}  // namespace gear::select

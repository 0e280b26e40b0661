#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "select/law.h"
#include "select/selection.h"

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
};

/// Items of a shard by their place in content order, a batch after the other: where the walk stands
/// is kept. Cost: O(1) an item, and as many steps as lie before the first one asked for.
class InOrder {
 public:
  InOrder(const SamplerOptions& options, store::Index& index)
      : steps_(drawable_steps(options, index)) {}

  /// Appends items [first, first + count) of the content, whose version this is.
  void add(const store::Index& index, uint64_t version, uint64_t first, uint64_t count,
           float probability, Selection& out);

 private:
  std::shared_ptr<store::Drawable> steps_;
  std::optional<Walk> walk_;
  uint64_t version_ = 0;  // of the content that it walks over
  uint64_t next_ = 0;     // place of the item that the walk comes to next
};

/// The first items of a shard in an order:
///
///     kFifo    from the oldest; with max_times_sampled = 1 the buffer is a queue
///     kLifo    from the newest; a stack
///     kTopK    by priority, the largest first, the lower slot first among equals
///
/// The same ones every time, until they are evicted or withdrawn by max_times_sampled. Cost: by age
/// O(count), see Walk; by priority one scan of the priorities (4 bytes a step; about 0.3 ms per
/// million) with a heap of `count`.
class Order {
 public:
  /// An item, and where it stands: smaller keys come first, in every shard alike. By age the
  /// number of the episode in its shard, or what that leaves of the largest number.
  struct Item {
    uint64_t key;
    store::Anchor anchor;
  };

  Order(const SamplerOptions& options, store::Index& index)
      : policy_(options.policy), steps_(drawable_steps(options, index)) {}

  /// Replaces `items` by up to `count`, the first one first.
  void list(const store::Index& index, uint64_t count, std::vector<Item>& items) const;

 private:
  void list_by_age(const store::Index& index, uint64_t count, std::vector<Item>& items) const;
  void list_best(const store::Index& index, uint64_t count, std::vector<Item>& items) const;
  void scan_steps(const store::Index& index, uint64_t count, std::vector<Item>& heap) const;
  void scan_episodes(const store::Index& index, uint64_t count, std::vector<Item>& heap) const;

  Policy policy_;
  std::shared_ptr<store::Drawable> steps_;
};

}  // namespace gear::select

#pragma once

#include <memory>
#include <optional>

#include "select/sampler.h"

namespace gear::select {

/// Walks what may be drawn in content order: episodes in creation order, steps in time order.
/// Valid while the index does not change. Cost: O(1) an item, and a look at each episode without
/// any on the way; what is spent is not looked at, but for rows between unspent ones of a page.
class Walk {
 public:
  enum class From : uint8_t { kOldest, kNewest };

  /// Of episodes as a whole (`offer` null), or of the offer's steps.
  Walk(const store::Index& index, const store::Offer* offer, From from);

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

  const store::Index* index_;
  const store::Offer* offer_;
  bool forward_;
  uint32_t episode_ = store::kNone;
  uint64_t uid_ = 0;  // its
  uint32_t page_ = store::kNone;
  uint32_t begin_ = 0;  // rows of page_ that are left
  uint32_t end_ = 0;
  uint64_t visited_ = 0;
};

/// Items of a shard by their place in content order, a batch after the other: where the walk stands
/// is kept. Cost: O(1) an item, and as many steps as lie before the first one asked for.
class InOrder {
 public:
  InOrder(const SamplerOptions& options, store::Index& index) : offer_(offer_of(options, index)) {}

  /// Before the content changes.
  void reset() { walk_.reset(); }
  /// Appends items [first, first + count).
  void add(const store::Index& index, uint64_t first, uint64_t count, float probability,
           Selection& out);

 private:
  std::shared_ptr<store::Offer> offer_;
  std::optional<Walk> walk_;
  uint64_t next_ = 0;  // place of the item that the walk comes to next
};

}  // namespace gear::select

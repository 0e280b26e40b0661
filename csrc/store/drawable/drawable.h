#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "store/drawable/draw_counts.h"
#include "store/drawable/mask.h"
#include "store/drawable/page_lists.h"
#include "store/drawable/weight_trees.h"
#include "store/index/dirty.h"

namespace gear::store {

/// The steps that laws of one look-ahead and one mask may draw: of an ended episode all, of an open
/// one those that `lookahead` steps follow, so that every window that reaches forward is complete;
/// of these the ones that are unspent and that the mask does not keep out. One bit a step says so;
/// counts and weights follow from it. Shared by all who draw by the same two.
///
///     step numbers   0 ...... begin ............... end - lookahead ...... end  [closing step]
///                    evicted  | reached              | not yet              |    never
class Drawable {
 public:
  /// `mask` may be null.
  Drawable(const IndexOptions& options, IndexState& state, const Slots& slots,
           const DrawCounts& draws, Dirty& dirty, uint64_t lookahead,
           std::shared_ptr<const Mask> mask);

  uint64_t lookahead() const { return lookahead_; }
  const std::shared_ptr<const Mask>& mask() const { return mask_; }
  uint64_t bytes() const;
  /// Changes whenever the set of steps does.
  uint64_t version() const { return version_; }
  /// The steps, one bit each.
  const StepBits& bits() const { return bits_; }
  bool contains(Anchor anchor) const { return bits_.test(anchor.page, anchor.row); }
  /// Their number by page: total() is that of all.
  const SumTree& counts() const { return counts_; }
  /// The row of a page's k-th step.
  uint32_t nth(uint32_t page, uint64_t k) const {
    return lists_ ? bits_.nth(page, k) : static_cast<uint32_t>(k);  // without holes
  }
  /// By slot. The first call for an alpha, and the first with_least, builds the tree in O(slots);
  /// it is kept up to date for as long as a caller holds it.
  std::shared_ptr<const WeightTree> weights(double alpha, bool with_least = false);

  /// The first (last) page of an episode that may hold a step, and the next (previous) one after
  /// it; kNone at the end. Where steps are spent or kept out, pages without any are passed over.
  uint32_t first(uint32_t episode) const {
    return lists_ ? lists_->first(episode) : state_.episodes[episode].head;
  }
  uint32_t last(uint32_t episode) const {
    return lists_ ? lists_->last(episode) : state_.episodes[episode].tail;
  }
  uint32_t next(uint32_t page) const {
    return lists_ ? lists_->next(page) : state_.pages[page].next;
  }
  uint32_t previous(uint32_t page) const {
    return lists_ ? lists_->previous(page) : state_.pages[page].previous;
  }

  // ---- what happens to the index: see Drawables ----
  void opened(uint32_t episode);
  /// Asks for what extend() looks at, whose last page this is.
  void prefetch(uint32_t episode, uint32_t page) const;
  /// More steps of the episode are reached.
  void extend(uint32_t episode);
  void drops_head(uint32_t episode);
  /// Whether the step may be drawn has changed.
  void look_again(Anchor anchor);
  void updated(std::span<const Anchor> anchors, std::span<const float> priorities);
  /// The largest priority is another: trees whose scale it moves are built anew, in O(slots).
  void follow_largest();
  /// Every priority may have changed.
  void reweigh();

 private:
  // How far an open episode is reached.
  struct Reached {
    uint64_t end = 0;
    uint32_t page = kNone;  // of step end - 1; kNone when that is not stored
  };

  uint64_t slot(uint32_t page, uint64_t row) const { return page * options_.page_steps + row; }
  bool kept_out(uint32_t page, uint64_t row) const {
    return draws_.spent(slot(page, row)) || (mask_ && mask_->keeps_out(page, row));
  }
  // Rows [0, reached(page)) are followed by enough steps.
  uint32_t reached(uint32_t page) const;
  void reach(uint32_t page, uint32_t from, uint32_t to);
  void set_count(uint32_t page, uint64_t count);
  void set_weights(WeightTree& tree, uint32_t page, uint32_t from, uint32_t to);
  void set_all_weights(WeightTree& tree);

  const IndexOptions& options_;
  IndexState& state_;
  const Slots& slots_;
  const DrawCounts& draws_;
  Dirty& dirty_;
  uint64_t lookahead_;
  std::shared_ptr<const Mask> mask_;
  StepBits bits_;
  SumTree counts_;
  std::optional<PageLists> lists_;  // where pages may have holes
  WeightTrees weights_;
  std::vector<Reached> reached_;  // by episode
  uint64_t version_ = 0;
  // Of one page, or of one update:
  std::vector<uint64_t> leaves_;
  std::vector<float> priorities_;
  std::vector<uint64_t> fixed_;
};

}  // namespace gear::store

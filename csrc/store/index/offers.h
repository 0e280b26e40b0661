#pragma once

#include <memory>
#include <span>
#include <vector>

#include "store/index/change_log.h"
#include "store/index/sum_tree.h"
#include "store/index/unspent_steps.h"

namespace gear::store {

/// Trees of fixed-point p^alpha, one for each alpha that somebody holds.
class WeightTrees {
 public:
  struct Tree {
    double alpha;
    SumTree sums;
  };

  uint64_t bytes() const;
  /// The tree of this alpha, or null.
  std::shared_ptr<Tree> find(double alpha) const;
  std::shared_ptr<Tree> make(double alpha, uint64_t num_leaves);
  /// Forgets the trees that nobody holds any more.
  void drop_unused();
  auto begin() const { return trees_.begin(); }
  auto end() const { return trees_.end(); }
  bool empty() const { return trees_.empty(); }

 private:
  std::vector<std::shared_ptr<Tree>> trees_;
};

/// The steps that laws of one look-ahead may draw: all of an ended episode, and those of an open
/// one that `lookahead` steps follow, so that every window that reaches forward is complete; of
/// these the unspent ones. Held by who draws: what one loader needs is nothing to another.
///
///     step numbers   0 ...... begin ............... end - lookahead ...... end  [closing step]
///                    evicted  | may be drawn        | not yet              |    never
class Offer {
 public:
  Offer(const IndexOptions& options, IndexState& state, const UnspentSteps& unspent,
        uint64_t lookahead);

  uint64_t lookahead() const { return lookahead_; }
  uint64_t bytes() const;
  /// Changes whenever the set of steps that may be drawn does.
  uint64_t version() const { return version_; }
  /// Steps that may be drawn, counted by page: total() is their number.
  const SumTree& counts() const { return counts_; }
  /// Rows [0, rows(page)) may be drawn but for spent ones.
  uint32_t rows(uint32_t page) const;
  bool drawable(Anchor anchor) const;
  /// By slot; 0 for what may not be drawn. The first call for an alpha builds the tree in O(slots);
  /// it is kept up to date for as long as a caller holds it.
  std::shared_ptr<const SumTree> weights(double alpha);

  // ---- mirrors ----
  /// A page as a mirror of this offer has it: `anchors` and `spent` are the offer's.
  Page seen(uint32_t page) const;
  /// From here on `log`, which outlives this or is detached, is told of every change.
  void attach(ChangeLog& log) { logs_.push_back(&log); }
  void detach(ChangeLog& log) { std::erase(logs_, &log); }

 private:
  friend class Offers;

  // How far an open episode is offered.
  struct Reached {
    uint64_t end = 0;
    uint32_t page = kNone;  // of step end - 1; kNone when that is not stored
  };

  uint64_t slot(uint32_t page, uint32_t row) const { return page * options_.page_steps + row; }
  void page_changes(uint32_t page) {
    for (ChangeLog* log : logs_) {
      log->page(page, seen(page));
    }
  }
  void opened(uint32_t episode);
  void publish(uint32_t episode);
  void show(uint32_t page, uint32_t from, uint32_t to);
  void hide_head(uint32_t episode);
  void spend(Anchor anchor);
  void unspend(Anchor anchor);
  void set_weights(WeightTrees::Tree& tree, uint32_t page, uint32_t from, uint32_t to);
  void reweigh(uint32_t page);
  void update(std::span<const Anchor> anchors, std::span<const float> priorities);

  const IndexOptions& options_;
  IndexState& state_;
  const UnspentSteps& unspent_;
  uint64_t lookahead_;
  SumTree counts_;
  WeightTrees weights_;
  std::vector<Reached> reached_;  // by episode
  uint64_t version_ = 0;
  std::vector<ChangeLog*> logs_;
  // Of one page, or of one update:
  std::vector<uint64_t> slots_;
  std::vector<float> priorities_;
  std::vector<uint64_t> fixed_;
};

/// What may be drawn of an index: steps, by look-ahead, and ended episodes as a whole; with what
/// weight; and what was drawn as often as it may be.
class Offers {
 public:
  Offers(const IndexOptions& options, IndexState& state);

  uint64_t bytes() const;
  /// Kept for as long as somebody holds it; look-ahead 0 always. The first call is O(pages).
  const std::shared_ptr<Offer>& steps(uint64_t lookahead);
  const Offer& steps() const { return *steps_[0]; }
  const UnspentSteps& unspent() const { return unspent_; }
  /// 1 at the head page of every episode that may be drawn as a whole.
  const SumTree& heads() const { return heads_; }
  /// Changes whenever the episodes that may be drawn do.
  uint64_t heads_version() const { return heads_version_; }
  /// By head page; as Offer::weights().
  std::shared_ptr<const SumTree> head_weights(double alpha);
  bool drawable(uint32_t episode) const;
  /// Whether nothing of an ended episode can be drawn any more, whatever batches in flight give
  /// back.
  bool exhausted(uint32_t episode) const;

  // ---- what happens to the index, before (changes) or after (the others) it does ----
  void page_changes(uint32_t page);
  void episode_changes(uint32_t episode);
  void episode_weight_changes(uint32_t episode);
  void opened(uint32_t episode);
  /// Priorities as they were given, to rows that are not counted yet.
  void appends(uint32_t page, uint64_t row, std::span<const float> priorities);
  /// Steps from row `from` of the tail page on, or (kNoRows) the end of the episode.
  void appended(uint32_t episode, uint32_t from);
  void ended(uint32_t episode);
  void drops_head(uint32_t episode);
  /// One draw of a step, or of the episode that it is of; with max_times_sampled alone, as the next
  /// two.
  void sampled(Anchor anchor, Unit unit);
  /// It was delivered.
  void delivered(Anchor anchor, Unit unit);
  /// It was not, and does not count.
  void given_back(Anchor anchor, Unit unit);
  /// Priorities were set.
  void updated(std::span<const Anchor> steps, std::span<const float> priorities);
  /// The episode's own weight, priority or head page changed.
  void refresh(uint32_t episode);
  /// Every priority may have changed.
  void reweigh();
  /// Whether somebody looks at the priorities of episodes: holds one of their trees.
  bool weighs_episodes();

 private:
  // Calls what(log) for every log of every offer.
  template <class What>
  void tell(const What& what) {
    for (const auto& offer : steps_) {
      for (ChangeLog* log : offer->logs_) {
        what(*log);
      }
    }
  }
  void withdraw(uint32_t episode);
  void drop_unused();
  /// Sets the episode's leaf; whether its weight was cut.
  bool weigh(WeightTrees::Tree& tree, uint32_t episode);

  const IndexOptions& options_;
  IndexState& state_;
  UnspentSteps unspent_;
  std::vector<std::shared_ptr<Offer>> steps_;  // the first: look-ahead 0
  SumTree heads_;
  WeightTrees head_weights_;
  // By episode: the priority whose weights were counted where they were cut. An episode is weighed
  // anew whenever its head page changes, and counted again only with another priority.
  std::vector<float> counted_;
  uint64_t heads_version_ = 0;
};

/// Its own weight, or the mean of its stored steps' priorities.
double episode_priority(const Episode& episode);

}  // namespace gear::store

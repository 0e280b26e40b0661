#pragma once

#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "store/id.h"
#include "store/index/change_log.h"
#include "store/index/index_state.h"
#include "store/index/sum_tree.h"

namespace gear::store {

/// One step, by place.
struct Anchor {
  uint32_t page;
  uint32_t row;
};

/// Throws InvalidArgument when the pages hold more than the 2^32 slots of an id, or an option is
/// out of range.
void check_options(const IndexOptions& options);

/// The bookkeeping of a shard: which step lies in which page, which steps may be drawn and with
/// what weight, and which page is given up next. Holds no experience itself.
///
/// A step of an ended episode may be drawn at once; a step of an open one only when `lookahead`
/// steps follow it, so that every window that reaches forward is complete.
/// Not thread safe: Shard's lock covers every call.
class Index {
 public:
  /// Starts empty. Throws as check_options().
  explicit Index(const IndexOptions& options);

  /// Takes over a saved state; throws CorruptData when it contradicts itself.
  Index(const IndexOptions& options, IndexState state);

  /// ---- reading ----
  const IndexOptions& options() const { return options_; }
  const IndexState& state() const { return state_; }
  const Page& page(uint32_t page) const { return state_.pages[page]; }
  const Episode& episode(uint32_t episode) const { return state_.episodes[episode]; }
  uint64_t num_slots() const { return options_.num_pages * options_.page_steps; }
  uint64_t bytes() const;  ///< memory of the index and its trees
  /// Changes whenever the set of steps that may be drawn does.
  uint64_t version() const { return version_; }

  uint64_t slot(Anchor anchor) const {
    return uint64_t{anchor.page} * options_.page_steps + anchor.row;
  }
  /// In 32 bits: a processor divides those in half the time.
  Anchor anchor_of(uint32_t slot) const {
    const auto page_steps = static_cast<uint32_t>(options_.page_steps);
    return {slot / page_steps, slot % page_steps};
  }
  int64_t id(Anchor anchor, Unit unit) const;

  /// The place an id names; throws InvalidArgument when it is no id of this index or its step is
  /// gone.
  Anchor resolve(int64_t id) const;

  /// Priority of an episode: its own weight, or the mean of its stored steps' priorities.
  double episode_priority(const Episode& episode) const;

  /// ---- drawing ----
  /// Steps that may be drawn, counted by page: total() is their number.
  const SumTree& anchors() const { return anchors_; }
  /// 1 at the head page of every episode that may be drawn as a whole.
  const SumTree& heads() const { return heads_; }
  /// Fixed-point p^alpha, by slot (steps) or by head page (episodes). The first call for an
  /// (alpha, unit) builds the tree in O(slots); it is kept up to date for as long as a caller holds
  /// it.
  std::shared_ptr<const SumTree> weights(double alpha, Unit unit);
  /// Row of the k-th step of a page that may be drawn.
  uint32_t nth_anchor(uint32_t page, uint64_t k) const {
    return state_.pages[page].spent == 0 ? static_cast<uint32_t>(k) : nth_unspent(page, k);
  }
  bool drawable(Anchor anchor) const;
  bool drawable(const Episode& episode) const;
  float priority(Anchor anchor) const;
  /// Counts one draw; with max_times_sampled the last one withdraws the step (or episode).
  void mark_sampled(Anchor anchor, Unit unit);
  /// Counts draws that were made, and weights that were cut, on a device.
  void count_sampled(uint64_t draws) { state_.counters.steps_sampled += draws; }
  void count_saturated(uint64_t weights) { state_.counters.saturated_weights += weights; }
  /// Frees ended episodes of which nothing is left to draw. After the plan of the draws is made.
  void release_spent();

  /// ---- writing ----
  uint32_t open_episode();
  /// Hands an open episode that no writer holds (after a load) to a writer; throws InvalidArgument
  /// naming what is wrong with `uid`.
  uint32_t adopt_episode(uint64_t uid);
  /// The writer is gone; the episode stays as it is.
  void abandon_episode(uint32_t episode) { state_.episodes[episode].has_writer = false; }
  bool has_room(uint32_t episode) const;
  /// The page that attach_page() will use; evicts until one is free. Throws OutOfMemory when all
  /// pages are the last ones of open episodes. `requester` is the episode that needs it.
  uint32_t next_free_page(uint32_t requester);
  /// Appends the next free page, which must exist, to the episode; returns it.
  uint32_t attach_page(uint32_t episode);
  /// Page evictions are stamped with the clock's value of their time; 0 for a page never evicted.
  void set_clock(uint64_t clock) { clock_ = clock; }
  uint64_t clock() const { return clock_; }
  uint64_t evicted_at(uint32_t page) const { return evicted_at_[page]; }
  /// Accounts for steps whose rows are already in the last page. A negative priority stands for the
  /// largest seen so far.
  void append(uint32_t episode, std::span<const float> priorities);
  /// `closing_columns` != 0: one further row, the closing step, is already in the last page.
  /// An episode without any step disappears.
  void end_episode(uint32_t episode, EpisodeState state, double weight, uint64_t closing_columns);
  /// Applies priorities (finite, >= 0, else InvalidArgument and nothing is applied) in order; ids
  /// of evicted steps are counted and ignored. Returns how many were applied.
  uint64_t update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// How many of the updates update() would apply; throws as it does. For a mirror to apply them.
  uint64_t check_update(std::span<const int64_t> ids, std::span<const float> priorities) const;
  /// The largest priority seen so far is at least this: that of other shards of the buffer counts.
  void raise_max_priority(float priority);
  /// Windows of some consumer reach `steps` past their anchor. Never lowers.
  void require_lookahead(uint64_t steps);

  /// ---- mirrors ----
  /// From here on `log`, which outlives this or is detached, is told of every change.
  void attach(ChangeLog& log) { logs_.push_back(&log); }
  void detach(ChangeLog& log) { std::erase(logs_, &log); }
  /// What a mirror that applied updates gives back: priorities of the slots from `first_slot` on,
  /// in as many calls as it takes, then the rest. Trees and order of eviction are renewed:
  /// O(slots).
  void take_priorities(uint64_t first_slot, std::span<const float> priorities);
  struct Settlement {
    std::span<const double> episode_weights;  ///< by episode; negative: mean of its steps'
    float max_priority = 0;
    uint64_t stale_updates = 0;  ///< since the last time
  };
  void settle(const Settlement& settlement);

 private:
  struct WeightTree {
    double alpha;
    Unit unit;
    SumTree tree;
  };

  Page& page_of(uint32_t page) { return state_.pages[page]; }
  /// Before a page changes; before or after an episode's extent does.
  void page_changes(uint32_t page) {
    for (ChangeLog* log : logs_) {
      log->page(page, state_.pages[page]);
    }
  }
  void episode_changes(uint32_t episode) {
    for (ChangeLog* log : logs_) {
      log->episode(episode);
    }
  }
  void episode_weight_changes(uint32_t episode) {
    for (ChangeLog* log : logs_) {
      log->episode_weight(episode);
    }
  }
  bool ended(const Episode& episode) const { return episode.state != EpisodeState::kOpen; }
  bool row_spent(uint64_t slot) const;
  uint32_t nth_unspent(uint32_t page, uint64_t k) const;
  /// Whether an id names something that is stored; `anchor` is its place then.
  bool find(StepId id, Anchor& anchor) const;
  /// Weights of priorities, in scratch_: valid until the next call.
  std::span<uint64_t> fixed(std::span<const float> priorities, double alpha, const SumTree& tree);
  /// Puts the weights of rows [from, to) of a page into a tree of steps.
  void set_weights(WeightTree& weights, uint32_t page, uint32_t from, uint32_t to);
  void publish(uint32_t episode);
  void publish_rows(uint32_t page, uint32_t from, uint32_t to);
  void hide_rows(uint32_t page, uint32_t from);
  void retract(uint32_t episode, uint64_t target);
  void set_priority(Anchor anchor, float priority);
  void refresh_episode(uint32_t episode);
  void withdraw_episode(uint32_t episode);
  bool evictable(uint32_t episode) const;
  uint32_t victim(uint32_t requester) const;
  void drop_head_page(uint32_t episode);
  void evict_head_page(uint32_t episode);
  void remove_episode(uint32_t episode);
  void drop_unused_trees();
  void check_state() const;

  IndexOptions options_;
  IndexState state_;
  SumTree anchors_;
  SumTree heads_;
  std::vector<std::shared_ptr<WeightTree>> weight_trees_;
  std::vector<uint32_t> free_episodes_;
  std::vector<uint32_t> spent_episodes_;
  /// Of one page, or of one update:
  std::vector<uint64_t> scratch_;        ///< weights
  std::vector<uint64_t> taken_slots_;    ///< steps that may be drawn
  std::vector<float> taken_priorities_;  ///< and their priorities
  std::vector<uint64_t> evicted_at_;
  uint64_t clock_ = 0;
  uint64_t version_ = 0;
  /// Ended episodes by (priority, uid): kept only for Evict::kLowestPriority.
  std::set<std::tuple<double, uint64_t, uint32_t>> by_priority_;
  std::vector<double> priority_key_;  ///< key under which an episode stands in by_priority_
  bool episode_priorities_used_;      ///< by eviction or by a weight tree over episodes
  std::vector<ChangeLog*> logs_;
};

}  // namespace gear::store

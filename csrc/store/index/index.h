#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/numbers/divider.h"
#include "store/drawable/drawables.h"
#include "store/id.h"
#include "store/index/page_chains.h"

namespace gear::store {

/// Throws InvalidArgument when the pages hold more than the 2^32 slots of an id, or an option is
/// out of range.
void check_options(const IndexOptions& options);

/// The bookkeeping of a shard: which step lies in which page, which steps may be drawn and with
/// what weight, and which page is given up next. Holds no experience itself. The front of its two
/// halves: PageChains (where steps lie) and Drawables (what may be drawn of them).
/// Not thread safe: Shard's lock covers every call.
class Index {
 public:
  /// Starts empty, or takes over what a checkpoint holds, which check_saved() has seen. Throws as
  /// check_options().
  explicit Index(const IndexOptions& options, IndexState saved = {}, const Slots& slots = {});
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  /// ---- reading ----
  const IndexOptions& options() const { return options_; }
  const IndexState& state() const { return state_; }
  const Slots& slots() const { return slots_; }
  const Page& page(uint32_t page) const { return state_.pages[page]; }
  const Episode& episode(uint32_t episode) const { return state_.episodes[episode]; }
  uint64_t num_slots() const { return options_.num_slots(); }
  uint64_t bytes() const;

  uint64_t slot(Anchor anchor) const {
    return uint64_t{anchor.page} * options_.page_steps + anchor.row;
  }
  Anchor anchor_of(uint32_t slot) const {
    const uint32_t page = by_page_steps_.divide(slot);
    return {page, by_page_steps_.remainder(slot, page)};
  }
  int64_t id(Anchor anchor, Unit unit) const {
    return StepId{static_cast<uint32_t>(slot(anchor)),
                  state_.pages[anchor.page].generation & StepId::kGenerationMask, options_.owner,
                  unit == Unit::kEpisode}
        .pack();
  }
  /// The place an id names; throws InvalidArgument when it is no id of this index or its step is
  /// gone.
  Anchor resolve(int64_t id) const;
  float priority(Anchor anchor) const;

  // ---- drawing ----
  /// The steps that laws of this look-ahead and mask (null: none) may draw; for as long as the
  /// caller holds it.
  std::shared_ptr<Drawable> steps(uint64_t lookahead,
                                  const std::shared_ptr<const Mask>& mask = nullptr) {
    return drawables_.steps(lookahead, mask);
  }
  /// Those without look-ahead and mask.
  const Drawable& steps() const { return drawables_.steps(); }
  /// The episodes that may be drawn, and how often what was drawn.
  const Drawables& drawables() const { return drawables_; }
  /// Fixed-point p^alpha by head page, of episodes; as Drawable::weights().
  std::shared_ptr<const WeightTree> head_weights(double alpha, bool with_least = false) {
    return drawables_.head_weights(alpha, with_least);
  }
  /// A filter of steps, for as long as the caller holds it: at first it lets all in.
  std::shared_ptr<Mask> make_mask() { return drawables_.make_mask(); }
  /// Whether who draws through the mask may draw these steps (of an episode's id: the stored ones
  /// of it), until they are evicted; ids of evicted ones are ignored. Returns how many ids are
  /// stored. Throws InvalidArgument for an id of another index, and changes nothing.
  uint64_t mark(Mask& mask, std::span<const int64_t> ids, bool may_be_drawn);
  /// Takes one draw; with max_times_sampled the last one withdraws the step (or episode).
  void mark_sampled(Anchor anchor, Unit unit);
  /// Takes draws without max_times_sampled.
  void count_sampled(uint64_t draws) { taken_.draws += draws; }
  /// Weights that saturated on a device.
  void count_saturated(uint64_t weights) { state_.counters.saturated_weights += weights; }
  /// The draws taken since the last call, which the caller then delivers or gives back.
  TakenDraws take_draws() { return std::exchange(taken_, {}); }
  /// They count; ended episodes of which nothing is left to draw are freed.
  void deliver(const TakenDraws& draws);
  /// They do not, and what is still stored may be drawn again.
  void give_back(const TakenDraws& draws);
  /// Takes again what is left to draw of the draws that a batch had taken when its state was saved:
  /// `uses`, steps' ids or episodes' uids, in all `draws` of this index.
  TakenDraws take_again(std::span<const uint64_t> uses, uint64_t draws, Unit unit);

  /// The next number of the seeds that loaders without one get; and: those below are given.
  uint32_t take_seed_number() { return state_.seeds_given++; }
  void pass_seed_numbers(uint64_t below) {
    state_.seeds_given = static_cast<uint32_t>(
        std::min(std::max(uint64_t{state_.seeds_given}, below), uint64_t{UINT32_MAX}));
  }

  /// ---- writing ----
  /// The history of this index begins with what has this checksum, which every checkpoint keeps.
  void identify(uint32_t checksum) { state_.identity = std::max(checksum, uint32_t{1}); }
  /// Hands an open episode that no writer holds (after a load) to a writer; throws InvalidArgument
  /// naming what is wrong with `uid`.
  uint32_t adopt_episode(uint64_t uid) { return chains_.adopt(uid); }
  /// It has no writer again.
  void leave_episode(uint32_t episode) { state_.episodes[episode].has_writer = false; }
  /// The page that the episode (kNone: one that is yet to open) fills next; evicts until there is
  /// one. It is free, or, where only the episode's own page could go, that one, emptied. For a
  /// closing step (`closing`) its own only page does not go. Throws OutOfMemory when all others are
  /// the last ones of open episodes.
  uint32_t next_page(uint32_t episode, bool closing = false);
  /// The same page, which next_page() has made, now the episode's; opens it where there is none.
  uint32_t attach_page(uint32_t& episode);
  /// Accounts for steps whose rows are already in the last page. A negative priority stands for the
  /// largest seen so far. O(slots) where one is the largest, and moves a WeightScale: so does
  /// update().
  void append(uint32_t episode, std::span<const float> priorities);
  /// Asks for what append() looks at, of a step that is to come to this place: so many appends
  /// ahead of it that these take as long as memory does.
  void expect_append(uint32_t episode, Anchor anchor) const;
  static constexpr uint64_t kAppendsAhead = 16;
  /// `closing_columns` != 0: one further row, the closing step, is already in the last page.
  /// An episode without any step disappears.
  void end_episode(uint32_t episode, EpisodeState state, double weight, uint64_t closing_columns);
  /// Applies priorities (finite, >= 0, else InvalidArgument and nothing is applied) in order; ids
  /// of evicted steps are counted and ignored. Returns how many were applied.
  uint64_t update(std::span<const int64_t> ids, std::span<const float> priorities);
  /// How many of the updates update() would apply; throws as it does. For a mirror to apply them.
  uint64_t check_update(std::span<const int64_t> ids, std::span<const float> priorities) const;
  /// The largest priority of steps seen so far is at least this, and the largest one that an
  /// episode had of its own: those of other shards of the buffer count. Where that moves a
  /// WeightScale, its tree is built anew: not between an offer and its draw.
  void raise_largest(float priority, float weight);

  // ---- mirrors, and others that show what is here ----
  /// What changed.
  Dirty& dirty() { return dirty_; }
  /// What a mirror that applied updates gives back: priorities of the slots from `first_slot` on,
  /// in as many calls as it takes, then the rest. Trees and order of eviction are renewed:
  /// O(slots).
  void take_priorities(uint64_t first_slot, std::span<const float> priorities);
  /// `episode_weights`, by episode: negative for the mean of its steps'; `stale_updates` since the
  /// last time.
  void settle(std::span<const double> episode_weights, float max_priority, float max_weight,
              uint64_t stale_updates);

 private:
  friend class Shard;  // stamps evictions: the clock of chains_

  // Whether an id names something that is stored; `anchor` is its place then.
  bool find(StepId id, Anchor& anchor) const;
  bool find(const Use& use, Anchor& anchor, Unit& unit) const;
  void set_priority(Anchor anchor, float priority);
  // The priority of an ended episode, or what may be drawn of it, changed.
  void refresh(uint32_t episode);
  void refresh_means();
  // Whether somebody looks at them while they change.
  bool ranks_episodes();
  uint32_t take_free_page(uint32_t episode);
  void drop_head_page(uint32_t episode);
  void evict_head_page(uint32_t episode);
  void free_episode(uint32_t episode);
  void free_exhausted(Anchor anchor);

  IndexOptions options_;
  base::Divider by_page_steps_;
  IndexState state_;
  Slots slots_;
  Dirty dirty_;
  PageChains chains_;
  Drawables drawables_;
  TakenDraws taken_;             // since the last take_draws()
  std::vector<Anchor> updated_;  // of one update, and their priorities
  std::vector<float> updated_priorities_;
};

/// The used pages in saving order: episodes in creation order, their pages in time order.
std::vector<uint32_t> used_pages(const IndexState& state);

}  // namespace gear::store

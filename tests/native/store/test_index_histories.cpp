// Thousands of short histories of an index, of shapes at random, each compared every few calls with
// a model that is obviously right. Those of test_index_random.cpp are few and long.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "slow_index.h"
#include "store/checkpoint/index_check.h"
#include "store/drawable/fixed_point.h"
#include "store/index/index.h"
#include "tries.h"

using namespace gear::store;
using gear::base::InvalidArgument;
using gear::testing::SlowIndex;
using gear::testing::tries;

namespace {

constexpr uint64_t kHistories = 500;  // 2,000 under ASan, 20,000 by night: tools/native.sh
constexpr uint64_t kMostSlots = 160;

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t range) {
    return gear::base::scale_to(gear::base::philox(seed_, 0, counter_++), range);
  }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <class T, size_t N>
  T of(const T (&values)[N]) {
    return values[below(N)];
  }

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
};

IndexOptions random_options(Random& random) {
  IndexOptions options;
  options.page_steps = random.of<uint64_t>({1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 63, 64, 65, 130});
  const uint64_t most = std::max<uint64_t>(kMostSlots / options.page_steps, 3);
  options.num_pages = 1 + random.below(random.one_in(2) ? std::min<uint64_t>(most, 8) : most);
  options.owner = random.one_in(2) ? 0 : static_cast<uint32_t>(random.below(StepId::kMostOwners));
  options.evict = random.of({Evict::kFifo, Evict::kLifo, Evict::kLowestPriority});
  options.max_times_sampled = random.of<uint32_t>({0, 0, 1, 1, 2, 5});
  return options;
}

class History {
 public:
  explicit History(uint64_t seed)
      : random_(seed),
        options_(random_options(random_)),
        index_(std::make_unique<Index>(options_)),
        slow_(options_),
        writers_(1 + random_.below(std::min<uint64_t>(options_.num_pages + 1, 8))),
        longest_append_(1 + random_.below(2 * std::min<uint64_t>(options_.page_steps, 12))),
        pause_(1 + random_.below(6)) {
    make_masks();
    views_.resize(1 + random_.below(3));
    for (View& view : views_) {
      renew(view);
    }
  }

  void run() {
    const uint64_t calls = 20 + random_.below(60);
    for (call_ = 1; call_ <= calls; ++call_) {
      operate();
      if (random_.one_in(pause_) || call_ == calls) {
        expect_same();
      }
    }
  }

 private:
  struct Writer {
    uint64_t uid = 0;  // 0: no episode is open
    uint32_t episode = kNone;
  };
  // What a law draws by: the same in the index and in words.
  struct View {
    uint64_t lookahead = 0;
    std::optional<size_t> mask;
    double alpha = 1.0;
    std::shared_ptr<Drawable> steps;
    std::shared_ptr<const WeightTree> weights;
  };
  // A step that was appended, with its id.
  struct Named {
    int64_t id;
    uint64_t uid;
    uint64_t number;
  };
  struct Batch {
    TakenDraws taken;
    std::vector<SlowIndex::Draw> draws;
    Unit unit;
  };
  // What lies in a slot.
  struct Place {
    const SlowIndex::Episode* episode = nullptr;
    uint64_t number = 0;
    const SlowIndex::Step* step = nullptr;
  };

  template <class Found, class Wanted>
  void expect(const Found& found, const Wanted& wanted, const char* what, uint64_t where = 0) {
    if (!(found == wanted)) [[unlikely]] {
      FAIL(std::string(what), " ", where, " after call ", call_, ": ", found, ", and of the model ",
           wanted, "; ", options_.num_pages, " pages of ", options_.page_steps, ", evict ",
           static_cast<int>(options_.evict), ", max_times_sampled ", options_.max_times_sampled);
    }
  }

  // ---- calls ----

  void operate() {
    const uint64_t kind = random_.below(100);
    Writer& writer = writers_[random_.below(writers_.size())];
    if (kind < 30) {
      append(writer, 1 + random_.below(longest_append_));
    } else if (kind < 45) {
      append_side_by_side();
    } else if (kind < 58) {
      end(writer);
    } else if (kind < 68) {
      update();
    } else if (kind < 84) {
      random_.one_in(4) ? draw_episodes() : draw_steps();
      settle_draws();
    } else if (kind < 90) {
      mark();
    } else if (kind < 94) {
      renew(views_[random_.below(views_.size())]);
    } else if (kind < 95) {
      head_alpha_ = random_alpha();
      head_weights_ = random_.one_in(3) ? nullptr : index_->head_weights(head_alpha_);
    } else if (kind < 96) {
      make_masks();
    } else if (kind < 98) {
      be_refused();
    } else {
      begin_again();
    }
  }

  double random_alpha() { return random_.of({0.0, 0.37, 0.6, 1.0, 2.5}); }
  float random_priority() {
    const uint64_t kind = random_.below(40);
    return kind == 0  ? 1e9F  // beyond what a weight can be
           : kind < 4 ? 0.0F
           : kind < 5 ? -0.0F
                      : static_cast<float>(random_.below(64)) / 16;
  }

  // Whether the writer has a page with a free row; which page goes for it is the model's too.
  bool need_room(Writer& writer, bool closing) {
    expect(has_room(*index_, writer.episode), slow_.has_room(writer.uid), "room of", writer.uid);
    if (slow_.has_room(writer.uid)) {
      return true;
    }
    uint32_t next = kNone;
    try {
      next = index_->next_page(writer.episode, closing);
    } catch (const gear::base::OutOfMemory&) {
    }
    expect(next != kNone, slow_.make_room(writer.uid, closing), "a page for", writer.uid);
    expect_begins();
    if (next == kNone || random_.one_in(30)) {  // another writer may take it
      return false;
    }
    expect(index_->attach_page(writer.episode), next, "the page attached");
    writer.uid = slow_.attach_page(writer.uid);
    expect(index_->episode(writer.episode).uid, writer.uid, "the episode opened");
    return true;
  }

  void append_row(Writer& writer, std::span<const float> priorities) {
    const uint32_t tail = index_->episode(writer.episode).tail;
    for (uint32_t i = 0; i < priorities.size(); ++i) {
      named_.push_back({index_->id({tail, index_->page(tail).rows + i}, Unit::kStep), writer.uid,
                        slow_.find(writer.uid)->end});
      slow_.append(writer.uid, priorities[i]);
    }
    index_->append(writer.episode, priorities);
    if (named_.size() > 400) {
      named_.erase(named_.begin(), named_.begin() + 200);
    }
  }

  void append(Writer& writer, uint64_t count) {
    while (count > 0 && need_room(writer, false)) {
      const uint64_t rows = index_->page(index_->episode(writer.episode).tail).rows;
      std::vector<float> priorities(std::min(count, options_.page_steps - rows));
      for (float& priority : priorities) {
        priority = random_.one_in(3) ? -1.0F : random_priority();
      }
      append_row(writer, priorities);
      count -= priorities.size();
    }
  }

  // As Appender::append() of environments: pages for all, then a row each.
  void append_side_by_side() {
    const uint64_t rounds = 1 + random_.below(longest_append_);
    const uint64_t taking_part = random_.below(uint64_t{1} << writers_.size());
    for (uint64_t round = 0; round < rounds; ++round) {
      bool all = true;
      for (size_t w = 0; w < writers_.size() && all; ++w) {
        all = (taking_part >> w & 1) == 0 || need_room(writers_[w], false);
      }
      for (size_t w = 0; w < writers_.size() && all; ++w) {
        if ((taking_part >> w & 1) != 0) {
          const float priority = random_.one_in(2) ? -1.0F : random_priority();
          append_row(writers_[w], {&priority, 1});
        }
      }
      if (!all) {
        leave_unfilled();
        return;
      }
    }
  }

  void leave_unfilled() {
    for (Writer& writer : writers_) {
      if (writer.uid != 0 && slow_.find(writer.uid)->end == 0) {
        end(writer, false);
      }
    }
  }

  void end(Writer& writer) {
    if (writer.uid != 0) {
      const bool closing = random_.one_in(2) && need_room(writer, true);
      end(writer, closing);
    }
  }
  void end(Writer& writer, bool closing) {
    const EpisodeState state = random_.of({EpisodeState::kTerminated, EpisodeState::kTruncated});
    const double weight = random_.one_in(3) ? std::fabs(random_priority()) : -1.0;
    const uint64_t columns = closing ? 1 + random_.below(7) : 0;
    index_->end_episode(writer.episode, state, weight, columns);
    slow_.end_episode(writer.uid, state, weight, columns);
    writer = {};
  }

  // Of steps late and early, and of episodes: those of the first stored step alone are stored.
  std::vector<std::pair<const Named*, bool>> some_named(uint64_t most) {
    std::vector<std::pair<const Named*, bool>> some;
    for (uint64_t i = named_.empty() ? 0 : random_.below(most); i > 0; --i) {
      const uint64_t back =
          random_.below(random_.one_in(2) ? std::min<uint64_t>(named_.size(), 12) : named_.size());
      some.emplace_back(&named_[named_.size() - 1 - back], random_.one_in(4));
    }
    return some;
  }
  static int64_t id_of(const Named& named, bool whole) {
    return whole ? named.id | int64_t{1} << 62 : named.id;
  }

  void update() {
    std::vector<int64_t> ids;
    std::vector<float> priorities;
    uint64_t applied = 0;
    for (const auto& [named, whole] : some_named(random_.one_in(6) ? 120 : 12)) {
      ids.push_back(id_of(*named, whole));
      priorities.push_back(random_priority());
      applied += slow_.update(named->uid, named->number, whole, priorities.back());
    }
    expect(index_->check_update(ids, priorities), applied, "updates that would be applied");
    expect(index_->update(ids, priorities), applied, "updates applied");
  }

  void mark() {
    const size_t mask = random_.below(SlowIndex::kMasks);
    const bool may_be_drawn = random_.one_in(3);
    std::vector<int64_t> ids;
    uint64_t stored = 0;
    for (const auto& [named, whole] : some_named(30)) {
      ids.push_back(id_of(*named, whole));
      stored += slow_.mark(mask, named->uid, named->number, whole, may_be_drawn);
    }
    expect(index_->mark(*masks_[mask], ids, may_be_drawn), stored, "steps marked");
  }

  void make_masks() {
    masks_.resize(SlowIndex::kMasks);
    for (size_t mask = 0; mask < masks_.size(); ++mask) {
      masks_[mask] = index_->make_mask();
      slow_.renew_mask(mask);
    }
    for (View& view : views_) {
      renew(view);
    }
  }

  void renew(View& view) {
    view.lookahead =
        random_.one_in(3) ? 0 : random_.below(2 * std::min<uint64_t>(options_.page_steps, 20) + 3);
    view.mask = random_.below(SlowIndex::kMasks + 1);
    if (*view.mask == SlowIndex::kMasks) {
      view.mask.reset();
    }
    view.alpha = random_alpha();
    look(view);
  }
  void look(View& view) {
    view.steps = index_->steps(view.lookahead, view.mask ? masks_[*view.mask] : nullptr);
    view.weights = view.steps->weights(view.alpha);
  }

  SlowIndex::Draw drawn(Anchor anchor, Unit unit) {
    const Page& page = index_->page(anchor.page);
    const uint64_t uid = index_->episode(page.episode).uid;
    if (unit == Unit::kEpisode) {
      return {uid, std::nullopt};
    }
    return {uid, page.first_step + anchor.row};
  }

  void draw_steps() {
    const View& view = views_[random_.below(views_.size())];
    const bool weighted = random_.one_in(2);
    Batch batch{{}, {}, Unit::kStep};
    for (uint64_t i = random_.below(12); i > 0; --i) {
      const SumTree& tree = weighted ? view.weights->sums : view.steps->counts();
      if (tree.total() == 0) {
        break;
      }
      const SumTree::Hit hit = hit_of(tree, random_.below(tree.total()));
      const auto leaf = static_cast<uint32_t>(hit.leaf);
      const Anchor anchor =
          weighted ? index_->anchor_of(leaf) : Anchor{leaf, view.steps->nth(leaf, hit.remainder)};
      sample(batch, anchor);
    }
    take(std::move(batch));
  }
  void draw_episodes() {
    Batch batch{{}, {}, Unit::kEpisode};
    for (uint64_t i = random_.below(4); i > 0; --i) {
      const SumTree& heads = index_->drawables().heads();
      if (heads.total() == 0) {
        break;
      }
      const SumTree::Hit hit = hit_of(heads, random_.below(heads.total()));
      sample(batch, {static_cast<uint32_t>(hit.leaf), 0});
    }
    take(std::move(batch));
  }
  static SumTree::Hit hit_of(const SumTree& tree, uint64_t target) {
    SumTree::Hit hit{};
    tree.find({&target, 1}, {&hit, 1});
    return hit;
  }
  void sample(Batch& batch, Anchor anchor) {
    batch.draws.push_back(drawn(anchor, batch.unit));
    slow_.sample(batch.draws.back());
    index_->mark_sampled(anchor, batch.unit);
  }
  void take(Batch batch) {
    batch.taken = index_->take_draws();
    expect(batch.taken.draws, batch.draws.size(), "draws taken");
    in_flight_.push_back(std::move(batch));
  }

  void settle_draws() {
    while (in_flight_.size() > random_.below(5)) {
      const uint64_t i = random_.below(in_flight_.size());
      const Batch& batch = in_flight_[i];
      if (random_.one_in(3)) {
        index_->give_back(batch.taken);
        slow_.give_back(batch.draws);
      } else {
        index_->deliver(batch.taken);
        slow_.deliver(batch.draws);
      }
      in_flight_.erase(in_flight_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  // Calls that throw, and change nothing.
  void be_refused() {
    if (named_.empty()) {
      return;
    }
    std::vector<int64_t> ids{named_.back().id, named_.back().id};
    std::vector<float> priorities{3.0F, 3.0F};
    if (random_.one_in(2)) {
      priorities[random_.below(2)] =
          random_.of({-1.0F, std::numeric_limits<float>::quiet_NaN(), HUGE_VALF});
    } else {
      ids[random_.below(2)] ^= random_.one_in(2) ? int64_t{1} << 51 : int64_t{1} << 31;
      CHECK_THROWS_AS(index_->mark(*masks_[0], ids, false), InvalidArgument);
    }
    CHECK_THROWS_AS(index_->update(ids, priorities), InvalidArgument);
    CHECK_THROWS_AS(index_->adopt_episode(uint64_t{1} << 40), InvalidArgument);
  }

  // As a checkpoint: what was drawn and is not delivered is not drawn, and is taken again behind
  // it.
  void begin_again() {
    for (const Batch& batch : in_flight_) {
      index_->give_back(batch.taken);
      slow_.give_back(batch.draws);
    }
    IndexState saved = index_->state();
    for (Episode& episode : saved.episodes) {
      episode.has_writer = false;
    }
    const Slots slots = saved_slots(*index_);
    check_saved(options_, saved, slots);
    for (View& view : views_) {
      view.steps.reset();
      view.weights.reset();
    }
    head_weights_.reset();
    masks_.clear();
    index_ = std::make_unique<Index>(options_, std::move(saved), slots);
    make_masks();
    for (Writer& writer : writers_) {
      if (writer.uid != 0) {
        writer.episode = index_->adopt_episode(writer.uid);
      }
    }
    for (Batch& batch : in_flight_) {
      std::vector<uint64_t> names;
      for (const Use& use : batch.taken.uses) {
        names.push_back(use.name);
      }
      if (!names.empty() && random_.one_in(2)) {  // a file may say so
        names.push_back(names[0]);
        batch.draws.push_back(*std::ranges::find_if(
            batch.draws, [](const SlowIndex::Draw& draw) { return draw.uid != 0; }));
      }
      batch.taken = index_->take_again(names, batch.draws.size(), batch.unit);
      // What could not be taken counts where the batch is delivered, and nowhere else.
      for (SlowIndex::Draw& draw : batch.draws) {
        const SlowIndex::Episode* episode = slow_.find(draw.uid);
        const bool taken = options_.max_times_sampled > 0 && episode != nullptr &&
                           (draw.number ? episode->steps.contains(*draw.number) &&
                                              !slow_.is_spent(episode->steps.at(*draw.number))
                                        : slow_.may_be_drawn_whole(*episode));
        taken ? slow_.sample(draw) : void(draw = {});
      }
    }
  }

  // ---- comparisons ----

  // Which pages are stored: a wrong one that went is seen at once.
  void expect_begins() {
    uint32_t e = index_->state().oldest;
    for (const SlowIndex::Episode& episode : slow_.episodes()) {
      expect(e == kNone, false, "an episode that went:", episode.uid);
      expect(index_->episode(e).uid, episode.uid, "the next episode");
      expect(index_->episode(e).begin, episode.begin, "begin of", episode.uid);
      e = index_->episode(e).newer;
    }
    expect(e, kNone, "the last episode");
  }

  void expect_same() {
    expect_begins();
    check_index(*index_);
    find_places();
    expect_counters();
    std::vector<View> views = views_;
    views.push_back({0, std::nullopt, 1.0, index_->steps(0), nullptr});
    for (const View& view : views) {
      expect_view(view);
    }
    expect_heads();
    expect_ids();
  }

  // Every page holds the steps that its episode has there, or none.
  void find_places() {
    places_.assign(index_->num_slots(), {});
    uint64_t free = options_.num_pages;
    uint32_t e = index_->state().oldest;
    for (const SlowIndex::Episode& wanted : slow_.episodes()) {
      const Episode& found = index_->episode(e);
      expect(found.end, wanted.end, "end of", wanted.uid);
      expect(static_cast<int>(found.state), static_cast<int>(wanted.state), "state of", wanted.uid);
      expect(found.weight, wanted.weight, "weight of", wanted.uid);
      expect(found.closing_columns, wanted.closing_columns, "closing step of", wanted.uid);
      expect(found.priority_sum == wanted.priority_sum(slow_.sum_shift()), true,
             "sum of priorities of", wanted.uid);
      expect(found.has_writer, !wanted.ended(), "writer of", wanted.uid);
      expect(episode_priority(index_->state(), found), wanted.priority(slow_.sum_shift()),
             "priority of", wanted.uid);
      uint64_t number = wanted.begin;
      uint64_t rows = wanted.rows();
      uint32_t p = found.head;
      for (size_t i = 0; i < wanted.pages.size(); ++i, --free) {
        expect(p == kNone, false, "a page of", wanted.uid);
        const Page& page = index_->page(p);
        const uint64_t of_page = std::min(rows, options_.page_steps);
        expect(page.episode, e, "episode of page", p);
        expect(page.first_step, number, "first step of page", p);
        expect(page.rows, of_page, "rows of page", p);
        expect(page.anchors, std::min(of_page, wanted.end - number), "steps of page", p);
        for (uint32_t row = 0; row < page.anchors; ++row, ++number) {
          Place& place = places_[index_->slot({p, row})];
          expect(place.episode == nullptr, true, "a page of two episodes:", p);
          place = {&wanted, number, &wanted.steps.at(number)};
          expect(index_->priority({p, row}), place.step->priority, "priority of slot",
                 index_->slot({p, row}));
        }
        rows -= of_page;
        p = page.next;
      }
      expect(p, kNone, "the last page of", wanted.uid);
      e = found.newer;
    }
    expect(index_->state().free_pages.size(), free, "free pages");
  }

  void expect_counters() {
    const IndexState& state = index_->state();
    expect(state.num_steps, slow_.num_steps(), "number of steps");
    expect(state.num_episodes, slow_.episodes().size(), "number of episodes");
    expect(state.max_priority, slow_.max_priority(), "largest priority");
    expect(state.max_weight, slow_.max_weight(), "largest weight of an episode");
    expect(state.counters.steps_inserted, slow_.counters().steps_inserted, "steps inserted");
    expect(state.counters.steps_evicted, slow_.counters().steps_evicted, "steps evicted");
    expect(state.counters.steps_sampled, slow_.counters().steps_sampled, "steps sampled");
    expect(state.counters.stale_updates, slow_.counters().stale_updates, "stale updates");
    const std::vector<uint16_t>& times_sampled = index_->slots().times_sampled;
    for (uint64_t slot = 0; slot < times_sampled.size(); ++slot) {
      const SlowIndex::Step* step = places_[slot].step;
      expect(times_sampled[slot], step ? step->times_sampled : 0, "draws of slot", slot);
      expect(index_->drawables().draws().times_delivered(slot),
             step ? step->times_sampled - step->in_flight : 0, "draws delivered of slot", slot);
    }
  }

  static uint64_t weight_of(float priority, double alpha, float largest, uint64_t leaves) {
    bool saturated = false;
    return fixed_weight(priority, weight_scale(largest, alpha, weight_bits(leaves)), saturated);
  }

  void expect_view(const View& view) {
    std::vector<uint64_t> counts(options_.num_pages), weights(places_.size());
    for (uint64_t slot = 0; slot < places_.size(); ++slot) {
      const auto& [episode, number, step] = places_[slot];
      const Anchor anchor = index_->anchor_of(static_cast<uint32_t>(slot));
      const bool wanted =
          step != nullptr && slow_.may_be_drawn(*episode, number, view.lookahead, view.mask);
      expect(view.steps->contains(anchor), wanted, "drawable: slot", slot);
      if (wanted) {
        expect(view.steps->nth(anchor.page, counts[anchor.page]++), anchor.row, "row of slot",
               slot);
        weights[slot] = weight_of(step->priority, view.alpha, slow_.max_priority(), places_.size());
      }
    }
    expect_tree(view.steps->counts(), counts, "steps to draw of page");
    expect_walk(*view.steps, counts);
    if (view.weights) {
      expect_tree(view.weights->sums, weights, "weight of slot");
    }
  }

  void expect_tree(const SumTree& tree, const std::vector<uint64_t>& wanted, const char* what) {
    uint64_t total = 0;
    for (uint64_t leaf = 0; leaf < wanted.size(); ++leaf) {
      expect(tree[leaf], wanted[leaf], what, leaf);
      total += wanted[leaf];
    }
    expect(tree.total(), total, what, wanted.size());
    if (total > 0) {
      uint64_t target = random_.below(total);
      const SumTree::Hit hit = hit_of(tree, target);
      uint64_t leaf = 0;
      for (; target >= wanted[leaf]; ++leaf) {
        target -= wanted[leaf];
      }
      expect(hit.leaf, leaf, "leaf of a target");
      expect(hit.remainder, target, "remainder of a target");
    }
  }

  // From page to page, forward and back, one comes to every step of an episode.
  void expect_walk(const Drawable& steps, const std::vector<uint64_t>& counts) {
    for (uint32_t e = index_->state().oldest; e != kNone; e = index_->episode(e).newer) {
      uint32_t forward = steps.first(e);
      const auto next = [&] {
        while (forward != kNone && counts[forward] == 0) {
          forward = steps.next(forward);
        }
        return forward;
      };
      uint32_t last = kNone;
      for (uint32_t p = index_->episode(e).head; p != kNone; p = index_->page(p).next) {
        if (counts[p] == 0) {
          continue;
        }
        expect(next(), p, "the next page to draw of");
        forward = steps.next(forward);
        uint32_t back = steps.previous(p);
        while (back != kNone && counts[back] == 0) {
          back = steps.previous(back);
        }
        expect(back, last, "the page to draw of before", p);
        last = p;
      }
      expect(next(), kNone, "the last page to draw of");
      uint32_t back = steps.last(e);
      while (back != kNone && counts[back] == 0) {
        back = steps.previous(back);
      }
      expect(back, last, "the first page to draw of from behind");
    }
  }

  void expect_heads() {
    std::vector<uint64_t> heads(options_.num_pages), weights(options_.num_pages);
    const float largest = std::max(slow_.max_priority(), slow_.max_weight());
    for (uint32_t e = index_->state().oldest; e != kNone; e = index_->episode(e).newer) {
      const SlowIndex::Episode& episode = *slow_.find(index_->episode(e).uid);
      const bool whole = slow_.may_be_drawn_whole(episode);
      expect(index_->drawables().drawable(e), whole, "drawable as a whole:", episode.uid);
      expect(index_->episode(e).times_sampled, episode.times_sampled, "draws of", episode.uid);
      if (whole) {
        const uint32_t head = index_->episode(e).head;
        heads[head] = 1;
        const auto priority = static_cast<float>(episode.priority(slow_.sum_shift()));
        weights[head] = weight_of(priority, head_alpha_, largest, options_.num_pages);
      }
    }
    expect_tree(index_->drawables().heads(), heads, "episode at page");
    if (head_weights_) {
      expect_tree(head_weights_->sums, weights, "weight of the episode at page");
    }
  }

  // An id names its step for as long as that is stored, and nothing after.
  void expect_ids() {
    for (size_t i = random_.below(3); i < named_.size(); i += 3) {
      const auto& [id, uid, number] = named_[i];
      bool stored = true;
      try {
        const Anchor anchor = index_->resolve(id);
        const Place& place = places_[index_->slot(anchor)];
        expect(place.episode != nullptr && place.episode->uid == uid && place.number == number,
               true, "the step of id", static_cast<uint64_t>(id));
      } catch (const InvalidArgument&) {
        stored = false;
      }
      expect(stored, slow_.is_stored(uid, number, false), "stored: id", static_cast<uint64_t>(id));
    }
  }

  Random random_;
  IndexOptions options_;
  std::unique_ptr<Index> index_;
  SlowIndex slow_;
  std::vector<Writer> writers_;
  uint64_t longest_append_;
  uint64_t pause_;  // calls between comparisons, about
  std::vector<std::shared_ptr<Mask>> masks_;
  std::vector<View> views_;
  double head_alpha_ = 1.0;
  std::shared_ptr<const WeightTree> head_weights_;
  std::vector<Named> named_;
  std::vector<Batch> in_flight_;
  std::vector<Place> places_;  // by slot
  uint64_t call_ = 0;
};

}  // namespace

TEST_CASE("an index agrees with a slow model through thousands of short histories") {
  for (uint64_t seed = 1; seed <= tries(kHistories); ++seed) {
    CAPTURE(seed);
    History(seed).run();
  }
}

// Random histories of an index, compared again and again with a recount from its pages.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/index/fixed_point.h"
#include "store/index/index.h"
#include "tries.h"

using namespace gear::store;
using gear::testing::tries;

namespace {

constexpr uint64_t kPages = 37;
constexpr uint64_t kPageSteps = 5;
constexpr double kAlpha = 0.6;

class History {
 public:
  explicit History(const IndexOptions& options) : options_(options), index_(options) {
    steps_ = index_.steps(0)->weights(kAlpha);
    reach(3);
  }

  void run(uint64_t operations) {
    for (uint64_t i = 1; i <= operations; ++i) {
      operate();
      if (i == operations / 3) {
        episodes_ = index_.head_weights(1.0);
      }
      if (i % 500 == 0) {
        expect_consistent();
      }
    }
  }

 private:
  struct Step {
    int64_t id;
    uint64_t uid;
    uint64_t number;
  };

  uint64_t random(uint64_t range) {
    return gear::base::scale_to(gear::base::philox(11, 0, counter_++), range);
  }
  float random_priority() { return static_cast<float>(random(1000)) / 64; }

  void operate() {
    const uint64_t kind = random(100);
    uint32_t& e = open_[random(4)];
    if (kind < 50) {
      append(e, 1 + random(9));
    } else if (kind < 60) {
      if (e != kNone) {
        end(e);
      }
    } else if (kind < 75) {
      update();
    } else if (kind < 90) {
      draw(Unit::kStep);
    } else if (kind < 97) {
      draw(Unit::kEpisode);
    } else if (kind < 99) {
      reach(random(8));
    }
  }

  void need_room(uint32_t& e) {
    if (has_room(index_, e)) {
      return;
    }
    const uint32_t next = index_.next_page(e);
    REQUIRE(index_.attach_page(e) == next);
  }

  void append(uint32_t& e, uint64_t count) {
    while (count > 0) {
      need_room(e);
      const uint32_t tail = index_.episode(e).tail;
      const uint32_t row = index_.page(tail).rows;
      std::vector<float> priorities(std::min(count, kPageSteps - row));
      for (float& priority : priorities) {
        priority = random_priority();
      }
      for (uint32_t i = 0; i < priorities.size(); ++i) {
        ledger_.push_back({index_.id({tail, row + i}, Unit::kStep), index_.episode(e).uid,
                           index_.episode(e).end + i});
      }
      index_.append(e, priorities);
      count -= priorities.size();
    }
  }

  void end(uint32_t& e) {
    const bool closing = random(2) == 0;
    if (closing) {
      need_room(e);
    }
    index_.end_episode(e, random(2) == 0 ? EpisodeState::kTerminated : EpisodeState::kTruncated,
                       random(2) == 0 ? -1.0 : random_priority(), closing ? 1 + random(7) : 0);
    e = kNone;
  }

  void update() {
    if (ledger_.empty()) {
      return;
    }
    std::vector<int64_t> ids;
    std::vector<float> priorities;
    for (uint64_t i = random(20); i > 0; --i) {
      const uint64_t back = random(std::min<uint64_t>(ledger_.size(), 300));
      const int64_t id = ledger_[ledger_.size() - 1 - back].id;
      ids.push_back(random(4) == 0 ? id | int64_t{1} << 62 : id);
      priorities.push_back(random_priority());
    }
    const uint64_t stale = index_.state().counters.stale_updates;
    const uint64_t applied = index_.update(ids, priorities);
    REQUIRE(applied + index_.state().counters.stale_updates - stale == ids.size());
  }

  void draw(Unit unit) {
    const SumTree& tree = unit == Unit::kStep ? index_.steps().counts() : index_.offers().heads();
    for (uint64_t i = random(5); i > 0 && tree.total() > 0; --i) {
      const uint64_t target = random(tree.total());
      SumTree::Hit hit{};
      tree.find({&target, 1}, {&hit, 1});
      const auto page = static_cast<uint32_t>(hit.leaf);
      const uint32_t row = unit == Unit::kStep ? index_.nth_anchor(page, hit.remainder) : 0;
      if (unit == Unit::kStep) {
        REQUIRE(index_.steps().drawable(Anchor{page, row}));
      }
      index_.mark_sampled({page, row}, unit);
    }
    in_flight_.push_back(index_.take_draws());
    while (in_flight_.size() > random(4)) {
      const auto one = in_flight_.begin() + static_cast<ptrdiff_t>(random(in_flight_.size()));
      random(2) == 0 ? index_.deliver(*one) : index_.give_back(*one);
      in_flight_.erase(one);
    }
  }

  // The pages that hold unspent steps are those of an index that begins here, in its order.
  void expect_unspent(const Index& again, uint32_t e) {
    const UnspentSteps& found = index_.offers().unspent();
    const UnspentSteps& wanted = again.offers().unspent();
    uint32_t q = wanted.first(e);
    uint32_t before = kNone;
    for (uint32_t p = found.first(e); p != kNone; p = found.next(p), q = wanted.next(q)) {
      REQUIRE(p == q);
      REQUIRE(found.begin(p) == wanted.begin(p));
      REQUIRE(found.end(p) == wanted.end(p));
      REQUIRE((found.previous(p) == before || options_.max_times_sampled == 0));
      before = p;
    }
    REQUIRE(q == kNone);
    REQUIRE(found.last(e) == wanted.last(e));
  }

  void expect_consistent() {
    check_saved(options_, saved_state(index_));
    Index again(options_, saved_state(index_));
    expect_offered(again);
    CHECK(again.steps().counts().total() == index_.steps().counts().total());
    CHECK(again.offers().heads().total() == index_.offers().heads().total());

    uint64_t steps = 0, anchors = 0, heads = 0, weight = 0, head_weight = 0;
    std::map<uint64_t, uint32_t> by_uid;
    std::vector<bool> offered(kPages * kPageSteps, false);
    for (uint32_t e = index_.state().oldest; e != kNone; e = index_.episode(e).newer) {
      const Episode& episode = index_.episode(e);
      by_uid[episode.uid] = e;
      expect_unspent(again, e);
      REQUIRE((!episode.ended() || !index_.offers().exhausted(e)));
      steps += episode.end - episode.begin;
      uint64_t sum = 0;
      for (uint32_t p = episode.head; p != kNone; p = index_.page(p).next) {
        uint64_t in_page = 0;
        for (uint32_t row = 0; row < kPageSteps; ++row) {
          const uint64_t number = index_.page(p).first_step + row;
          const uint64_t slot = index_.slot({p, row});
          offered[slot] = number < episode.end;
          if (number < episode.end) {
            sum += priority_units(index_.priority({p, row}));
          }
          const bool spent = options_.max_times_sampled > 0 &&
                             index_.state().times_sampled[slot] >= options_.max_times_sampled;
          REQUIRE(index_.steps().drawable(Anchor{p, row}) == (offered[slot] && !spent));
          in_page += offered[slot] && !spent;
          expect_weight(*steps_, slot, offered[slot] && !spent, index_.priority({p, row}), kAlpha);
          weight += (*steps_)[slot];
        }
        REQUIRE(index_.steps().counts()[p] == in_page);
        anchors += in_page;
      }
      REQUIRE(episode.priority_sum == sum);
      if (episode.head == kNone) {
        continue;
      }
      const bool whole = index_.offers().drawable(e);
      REQUIRE(index_.offers().heads()[episode.head] == whole);
      heads += whole;
      if (episodes_ == nullptr) {
        continue;
      }
      expect_weight(*episodes_, episode.head, whole, static_cast<float>(episode_priority(episode)),
                    1.0);
      head_weight += (*episodes_)[episode.head];
    }
    CHECK(index_.state().num_steps == steps);
    CHECK(index_.state().num_episodes == by_uid.size());
    CHECK(index_.steps().counts().total() == anchors);
    CHECK(index_.offers().heads().total() == heads);
    CHECK(steps_->total() == weight);
    if (episodes_ != nullptr) {
      CHECK(episodes_->total() == head_weight);
    }
    for (uint64_t slot = 0; slot < offered.size(); ++slot) {
      REQUIRE(std::signbit(index_.state().priorities[slot]) == !offered[slot]);
    }
    expect_ids(by_uid);
  }

  void reach(uint64_t lookahead) {
    reaching_ = index_.steps(lookahead);
    reaching_weights_ = reaching_->weights(kAlpha);
  }

  // What a law with look-ahead may draw: a recount, and the same as of an index that begins here.
  void expect_offered(Index& again) {
    const std::shared_ptr<Offer> fresh = again.steps(reaching_->lookahead());
    const std::shared_ptr<const SumTree> weights = fresh->weights(kAlpha);
    for (uint32_t p = 0; p < kPages; ++p) {
      const Page& page = index_.page(p);
      uint64_t in_page = 0;
      for (uint32_t row = 0; row < kPageSteps; ++row) {
        bool offered = false;
        if (page.episode != kNone && row < page.anchors) {
          const Episode& episode = index_.episode(page.episode);
          offered = (episode.state != EpisodeState::kOpen ||
                     page.first_step + row + reaching_->lookahead() < episode.end) &&
                    index_.steps().drawable({p, row});
        }
        REQUIRE(reaching_->drawable({p, row}) == offered);
        const uint64_t slot = index_.slot({p, row});
        expect_weight(*reaching_weights_, slot, offered, index_.priority({p, row}), kAlpha);
        REQUIRE((*weights)[slot] == (*reaching_weights_)[slot]);
        in_page += offered;
      }
      REQUIRE(reaching_->counts()[p] == in_page);
      REQUIRE(fresh->counts()[p] == in_page);
      REQUIRE(fresh->rows(p) == reaching_->rows(p));
    }
  }

  static void expect_weight(const SumTree& tree, uint64_t leaf, bool offered, float priority,
                            double alpha) {
    bool saturated = false;
    REQUIRE(tree[leaf] == (offered ? fixed_weight(priority, alpha, kMaxWeight, saturated) : 0));
  }

  // An id names its step for as long as that is stored, and nothing after.
  void expect_ids(const std::map<uint64_t, uint32_t>& by_uid) {
    for (size_t i = ledger_.size() % 5; i < ledger_.size(); i += 5) {
      const Step& step = ledger_[i];
      const auto found = by_uid.find(step.uid);
      const bool alive =
          found != by_uid.end() && step.number >= index_.episode(found->second).begin;
      bool resolved = false;
      try {
        const Anchor anchor = index_.resolve(step.id);
        resolved = true;
        REQUIRE(alive);
        REQUIRE(index_.page(anchor.page).episode == found->second);
        REQUIRE(index_.page(anchor.page).first_step + anchor.row == step.number);
      } catch (const gear::base::InvalidArgument&) {
      }
      REQUIRE(resolved == alive);
    }
    if (ledger_.size() > 400) {
      ledger_.erase(ledger_.begin(), ledger_.end() - 400);
    }
  }

  IndexOptions options_;
  Index index_;
  std::shared_ptr<const SumTree> steps_;
  std::shared_ptr<Offer> reaching_;  // of some look-ahead
  std::shared_ptr<const SumTree> reaching_weights_;
  std::shared_ptr<const SumTree> episodes_;
  std::vector<uint32_t> open_ = std::vector<uint32_t>(4, kNone);
  std::vector<Step> ledger_;
  std::vector<TakenDraws> in_flight_;
  uint64_t counter_ = 0;
};

}  // namespace

TEST_CASE("an index agrees with a recount through a random history") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    for (const uint32_t max_times_sampled : {0U, 1U, 3U}) {
      CAPTURE(static_cast<int>(evict));
      CAPTURE(max_times_sampled);
      History({kPages, kPageSteps, 0, evict, max_times_sampled})
          .run(tries(max_times_sampled == 0 ? 20000 : 7000));
    }
  }
}

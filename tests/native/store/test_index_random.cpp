// Random histories of an index, compared again and again with a recount from its pages.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/drawable/fixed_point.h"
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
  explicit History(const IndexOptions& options)
      : options_(options), index_(options), mask_(index_.make_mask()) {
    steps_ = index_.steps(0)->weights(kAlpha);
    reach(3, nullptr);
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
    } else if (kind < 98) {
      reach(random(8), random(2) == 0 ? mask_ : nullptr);
    } else {
      mark();
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

  void mark() {
    std::vector<int64_t> ids;
    for (uint64_t i = ledger_.empty() ? 0 : random(30); i > 0; --i) {
      const uint64_t back = random(std::min<uint64_t>(ledger_.size(), 300));
      ids.push_back(ledger_[ledger_.size() - 1 - back].id);
    }
    const bool may_be_drawn = random(3) == 0;
    index_.mark(*mask_, ids, may_be_drawn);
    for (const int64_t id : ids) {
      if (may_be_drawn) {
        kept_out_.erase(id);
      } else {
        kept_out_.insert(id);
      }
    }
  }

  void draw(Unit unit) {
    const SumTree& tree =
        unit == Unit::kStep ? index_.steps().counts() : index_.drawables().heads();
    for (uint64_t i = random(5); i > 0 && tree.total() > 0; --i) {
      const uint64_t target = random(tree.total());
      SumTree::Hit hit{};
      tree.find({&target, 1}, {&hit, 1});
      const auto page = static_cast<uint32_t>(hit.leaf);
      const uint32_t row = unit == Unit::kStep ? index_.steps().nth(page, hit.remainder) : 0;
      if (unit == Unit::kStep) {
        REQUIRE(index_.steps().contains(Anchor{page, row}));
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

  // From page to page, forward and back, one comes to every step of an episode.
  static void expect_pages(const Index& index, const Drawable& steps, uint32_t e) {
    std::vector<uint32_t> wanted;
    for (uint32_t p = index.episode(e).head; p != kNone; p = index.page(p).next) {
      if (steps.counts()[p] > 0) {
        wanted.push_back(p);
      }
    }
    std::vector<uint32_t> found, back;
    for (uint32_t p = steps.first(e); p != kNone; p = steps.next(p)) {
      if (steps.counts()[p] > 0) {
        found.push_back(p);
      }
    }
    for (uint32_t p = steps.last(e); p != kNone; p = steps.previous(p)) {
      if (steps.counts()[p] > 0) {
        back.insert(back.begin(), p);
      }
    }
    REQUIRE(found == wanted);
    REQUIRE(back == wanted);
  }

  void expect_consistent() {
    check_index(index_);
    Index again(options_, index_.state(), saved_slots(index_));
    expect_offered(again);
    CHECK(again.steps().counts().total() == index_.steps().counts().total());
    CHECK(again.drawables().heads().total() == index_.drawables().heads().total());

    uint64_t steps = 0, anchors = 0, heads = 0, weight = 0, head_weight = 0;
    std::map<uint64_t, uint32_t> by_uid;
    std::vector<bool> offered(kPages * kPageSteps, false);
    for (uint32_t e = index_.state().oldest; e != kNone; e = index_.episode(e).newer) {
      const Episode& episode = index_.episode(e);
      by_uid[episode.uid] = e;
      expect_pages(index_, index_.steps(), e);
      expect_pages(index_, *reaching_, e);
      REQUIRE((!episode.ended() || !index_.drawables().exhausted(e)));
      steps += episode.end - episode.begin;
      PrioritySum sum = 0;
      for (uint32_t p = episode.head; p != kNone; p = index_.page(p).next) {
        uint64_t in_page = 0;
        for (uint32_t row = 0; row < kPageSteps; ++row) {
          const uint64_t number = index_.page(p).first_step + row;
          const uint64_t slot = index_.slot({p, row});
          offered[slot] = number < episode.end;
          if (number < episode.end) {
            sum += in_sum(index_.slots().priorities[slot], index_.state().sum_shift);
          }
          const bool spent = options_.max_times_sampled > 0 &&
                             index_.slots().times_sampled[slot] >= options_.max_times_sampled;
          REQUIRE(index_.steps().contains(Anchor{p, row}) == (offered[slot] && !spent));
          in_page += offered[slot] && !spent;
          expect_weight(*steps_, slot, offered[slot] && !spent, index_.priority({p, row}),
                        index_.state().max_priority);
          weight += steps_->sums[slot];
        }
        REQUIRE(index_.steps().counts()[p] == in_page);
        anchors += in_page;
      }
      REQUIRE((episode.priority_sum == sum));
      if (episode.head == kNone) {
        continue;
      }
      const bool whole = index_.drawables().drawable(e);
      REQUIRE(index_.drawables().heads()[episode.head] == whole);
      heads += whole;
      if (episodes_ == nullptr) {
        continue;
      }
      expect_weight(*episodes_, episode.head, whole,
                    static_cast<float>(episode_priority(index_.state(), episode)),
                    index_.state().largest_of_episodes());
      head_weight += episodes_->sums[episode.head];
    }
    CHECK(index_.state().num_steps == steps);
    CHECK(index_.state().num_episodes == by_uid.size());
    CHECK(index_.steps().counts().total() == anchors);
    CHECK(index_.drawables().heads().total() == heads);
    CHECK(steps_->sums.total() == weight);
    if (episodes_ != nullptr) {
      CHECK(episodes_->sums.total() == head_weight);
    }
    expect_ids(by_uid);
  }

  void reach(uint64_t lookahead, const std::shared_ptr<const Mask>& mask) {
    reaching_ = index_.steps(lookahead, mask);
    reaching_weights_ = reaching_->weights(kAlpha);
  }

  // What a law with look-ahead and mask may draw: a recount, and the same as of an index that
  // begins here.
  void expect_offered(Index& again) {
    const std::shared_ptr<Mask> mask = reaching_->mask() ? again.make_mask() : nullptr;
    if (mask) {
      again.mark(*mask, std::vector<int64_t>(kept_out_.begin(), kept_out_.end()), false);
    }
    const std::shared_ptr<Drawable> fresh = again.steps(reaching_->lookahead(), mask);
    const std::shared_ptr<const WeightTree> weights = fresh->weights(kAlpha);
    for (uint32_t p = 0; p < kPages; ++p) {
      const Page& page = index_.page(p);
      uint64_t in_page = 0;
      for (uint32_t row = 0; row < kPageSteps; ++row) {
        bool offered = false;
        if (page.episode != kNone && row < page.anchors) {
          const Episode& episode = index_.episode(page.episode);
          offered = (episode.state != EpisodeState::kOpen ||
                     page.first_step + row + reaching_->lookahead() < episode.end) &&
                    index_.steps().contains({p, row}) &&
                    !(mask && kept_out_.contains(index_.id({p, row}, Unit::kStep)));
        }
        REQUIRE(reaching_->contains({p, row}) == offered);
        if (offered) {
          REQUIRE(reaching_->nth(p, in_page) == row);
        }
        const uint64_t slot = index_.slot({p, row});
        expect_weight(*reaching_weights_, slot, offered, index_.priority({p, row}),
                      index_.state().max_priority);
        REQUIRE(weights->sums[slot] == reaching_weights_->sums[slot]);
        in_page += offered;
      }
      REQUIRE(reaching_->counts()[p] == in_page);
      REQUIRE(fresh->counts()[p] == in_page);
    }
  }

  static void expect_weight(const WeightTree& tree, uint64_t leaf, bool offered, float priority,
                            float largest) {
    bool saturated = false;
    const WeightScale scale = weight_scale(largest, tree.scale.alpha, tree.scale.bits);
    REQUIRE(tree.sums[leaf] == (offered ? fixed_weight(priority, scale, saturated) : 0));
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
  std::shared_ptr<Mask> mask_;
  std::shared_ptr<const WeightTree> steps_;
  std::shared_ptr<Drawable> reaching_;  // of some look-ahead, through the mask or not
  std::shared_ptr<const WeightTree> reaching_weights_;
  std::shared_ptr<const WeightTree> episodes_;
  std::vector<uint32_t> open_ = std::vector<uint32_t>(4, kNone);
  std::vector<Step> ledger_;
  std::set<int64_t> kept_out_;  // of the mask
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

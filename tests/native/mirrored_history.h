#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/index/index.h"
#include "store/mirror/device_view.h"
#include "store/mirror/mirror.h"

namespace gear::tests {

// What a mirror holds, brought to the host.
struct MirrorImage {
  // Of one set of steps that may be drawn; weights of kMirroredAlpha.
  struct Steps {
    std::vector<uint64_t> words, counts, weights;  // bits and leaves
    uint64_t counts_total = 0, weights_total = 0;
  };

  std::vector<store::Page> pages;
  std::vector<store::DeviceEpisode> episodes;
  std::vector<float> priorities;
  std::vector<uint64_t> heads;
  uint64_t heads_total = 0;
  std::vector<Steps> steps;  // of MirroredSteps
  bool levels_agree = true;  // every node is the sum of its children
};

constexpr double kMirroredAlpha = 0.6;

// The sets of steps that a mirror shows: without look-ahead, with, and with one through a mask.
struct MirroredSteps {
  std::shared_ptr<store::Mask> mask;

  explicit MirroredSteps(store::Index& index) : mask(index.make_mask()) {}
  static constexpr uint64_t kSets = 3;
  static constexpr uint64_t kLookaheads[kSets] = {0, 3, 1};
  std::shared_ptr<const store::Mask> mask_of(uint64_t set) const {
    return set == 2 ? mask : nullptr;
  }
};

// One history lived by two indexes: one keeps its priorities itself, the other leaves them to a
// mirror. Whatever happens, the mirror shows what the first index has, and after a settle the
// second is equal to it in everything.
class MirroredHistory {
 public:
  using MakeMirror =
      std::function<std::shared_ptr<store::Mirror>(store::Index&, const MirroredSteps&)>;
  // Makes the mirror hold priorities and the trees of weights of kMirroredAlpha.
  using RequireWeights = std::function<void(store::Mirror&)>;
  using TakeImage = std::function<MirrorImage(store::Mirror&)>;

  struct Options {
    store::IndexOptions index;
    uint64_t seed = 11;
    uint64_t longest_append = 9;
    bool sync_always = false;  // after each operation; else now and then
  };

  MirroredHistory(const Options& options, const MakeMirror& make, RequireWeights require,
                  TakeImage take)
      : options_(options),
        page_steps_(options.index.page_steps),
        reference_(options.index),
        index_(options.index),
        reference_sets_(reference_),
        sets_(index_),
        require_(std::move(require)),
        take_(std::move(take)) {
    for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
      steps_.push_back(
          reference_.steps(MirroredSteps::kLookaheads[set], reference_sets_.mask_of(set)));
    }
    for (int i = 0; i < 40; ++i) {
      operate();  // what there is before the mirror
    }
    mirror_ = make(index_, sets_);
    mirror_->sync();
    for (int i = 0; i < 40; ++i) {
      operate();
    }
  }

  void run(uint64_t operations) {
    for (uint64_t i = 1; i <= operations; ++i) {
      if (i == operations / 8) {
        begin_priorities();
      }
      operate();
      if (options_.sync_always) {
        mirror_->sync();
      }
      if (i % (operations / 16) == 0) {
        expect_same_image();
      }
      if (i % (operations / 8) == 0) {
        expect_settled();
      }
    }
  }

 private:
  uint64_t random(uint64_t range) {
    return base::scale_to(base::philox(options_.seed, 0, counter_++), range);
  }
  float random_priority() {
    const uint64_t kind = random(100);
    return kind == 0 ? 1e9F : kind < 5 ? 0.0F : static_cast<float>(random(1000)) / 64;
  }

  void begin_priorities() {
    for (const auto& steps : steps_) {
      reference_trees_.push_back(steps->weights(kMirroredAlpha));
    }
    cpu_reference_tree_ = reference_.steps(0)->weights(1.0);
    cpu_tree_ = index_.steps(0)->weights(1.0);
    require_(*mirror_);
  }

  void operate() {
    const uint64_t kind = random(100);
    uint32_t& e = open_[random(open_.size())];
    if (kind < 50) {
      append(e, 1 + random(options_.longest_append));
    } else if (kind < 60) {
      if (e != store::kNone) {
        end(e);
      }
    } else if (kind < 80) {
      update();
    } else if (kind < 82) {
      update_wrongly();
    } else if (kind < 85) {
      mark();
    } else if (kind < 88 && mirror_) {
      mirror_->settle();
    } else if (mirror_) {
      mirror_->sync();
    }
  }

  void need_room(uint32_t& e) {
    if (has_room(reference_, e)) {
      return;
    }
    if (mirror_ && index_.state().free_pages.empty()) {
      mirror_->settle();
    }
    uint32_t same = e;
    REQUIRE(reference_.next_page(e) == index_.next_page(e));
    REQUIRE(reference_.attach_page(e) == index_.attach_page(same));
    REQUIRE(same == e);
  }

  void append(uint32_t& e, uint64_t count) {
    while (count > 0) {
      need_room(e);
      const uint32_t tail = reference_.episode(e).tail;
      const uint32_t row = reference_.page(tail).rows;
      std::vector<float> priorities(std::min(count, page_steps_ - row));
      const bool defaults = random(2) == 0;
      for (float& priority : priorities) {
        priority = defaults ? -1.0F : random_priority();
      }
      for (uint32_t i = 0; i < priorities.size(); ++i) {
        ids_.push_back(reference_.id({tail, row + i}, store::Unit::kStep));
      }
      reference_.append(e, priorities);
      index_.append(e, priorities);
      count -= priorities.size();
    }
  }

  void end(uint32_t& e) {
    const bool closing = random(2) == 0;
    if (closing) {
      need_room(e);
    }
    const double weight = random(2) == 0 ? -1.0 : static_cast<double>(random_priority());
    const uint64_t columns = closing ? 1 + random(7) : 0;
    for (store::Index* index : {&reference_, &index_}) {
      index->end_episode(e, store::EpisodeState::kTerminated, weight, columns);
    }
    e = store::kNone;
  }

  void update() {
    if (ids_.empty()) {
      return;
    }
    std::vector<int64_t> ids;
    std::vector<float> priorities;
    for (uint64_t i = random(random(8) == 0 ? 700 : 20); i > 0; --i) {
      const uint64_t back = random(std::min<uint64_t>(ids_.size(), 300));
      const int64_t id = ids_[ids_.size() - 1 - back];
      ids.push_back(random(4) == 0 ? id | int64_t{1} << 62 : id);
      priorities.push_back(random_priority());
    }
    const bool mirrored = mirror_ && mirror_->holds_priorities();
    const uint64_t expected =
        mirrored ? index_.check_update(ids, priorities) : index_.update(ids, priorities);
    REQUIRE(reference_.update(ids, priorities) == expected);
    if (mirrored) {
      mirror_->update(ids.data(), priorities.data(), ids.size(), false, 0);
    }
    if (ids_.size() > 4000) {
      ids_.erase(ids_.begin(), ids_.end() - 1000);
    }
  }

  void mark() {
    std::vector<int64_t> ids;
    for (uint64_t i = ids_.empty() ? 0 : random(30); i > 0; --i) {
      ids.push_back(ids_[ids_.size() - 1 - random(std::min<uint64_t>(ids_.size(), 300))]);
    }
    const bool may_be_drawn = random(3) == 0;
    CHECK(reference_.mark(*reference_sets_.mask, ids, may_be_drawn) ==
          index_.mark(*sets_.mask, ids, may_be_drawn));
  }

  void update_wrongly() {
    if (ids_.size() < 10 || !mirror_ || !mirror_->holds_priorities()) {
      return;
    }
    std::vector<int64_t> ids(ids_.end() - 10, ids_.end());
    std::vector<float> priorities(10, 3.0F);
    constexpr float kWrong[] = {-1.0F, std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()};
    if (random(2) == 0) {
      priorities[random(10)] = kWrong[random(3)];
    } else {
      ids[random(10)] = random(2) == 0 ? -1 : int64_t{7} << 50;
    }
    CHECK_THROWS_AS(reference_.update(ids, priorities), base::InvalidArgument);
    mirror_->update(ids.data(), priorities.data(), ids.size(), false, 0);
    take_(*mirror_);  // waits for the device
    CHECK_THROWS_AS(mirror_->raise_failed_update(), base::InvalidArgument);
    mirror_->raise_failed_update();  // once
  }

  void expect_same_image() {
    mirror_->sync();
    const MirrorImage image = take_(*mirror_);
    const auto& pages = reference_.state().pages;
    for (uint32_t p = 0; p < pages.size(); ++p) {
      CAPTURE(p);
      const store::Page& seen = image.pages[p];
      REQUIRE(seen.episode == pages[p].episode);
      REQUIRE(image.heads[p] == reference_.drawables().heads()[p]);
      if (seen.episode == store::kNone) {
        continue;
      }
      REQUIRE(seen.generation == pages[p].generation);
      REQUIRE(seen.previous == pages[p].previous);
      REQUIRE(seen.next == pages[p].next);
      REQUIRE(seen.first_step == pages[p].first_step);
      REQUIRE(seen.rows == pages[p].rows);
      REQUIRE(seen.anchors == pages[p].anchors);
      const store::DeviceEpisode& episode = image.episodes[seen.episode];
      REQUIRE(episode.begin == reference_.episode(seen.episode).begin);
      REQUIRE(episode.end == reference_.episode(seen.episode).end);
      REQUIRE(episode.state == reference_.episode(seen.episode).state);
      REQUIRE(episode.closing_columns == reference_.episode(seen.episode).closing_columns);
    }
    CHECK(image.levels_agree);
    CHECK(image.heads_total == reference_.drawables().heads().total());
    for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
      CAPTURE(set);
      expect_same_steps(image.steps.at(set), *steps_[set]);
    }
    if (!mirror_->holds_priorities()) {
      return;
    }
    for (uint64_t slot = 0; slot < reference_.num_slots(); ++slot) {
      CAPTURE(slot);
      const store::Anchor anchor = reference_.anchor_of(static_cast<uint32_t>(slot));
      REQUIRE((anchor.row >= pages[anchor.page].anchors ||
               std::bit_cast<uint32_t>(image.priorities[slot]) ==
                   std::bit_cast<uint32_t>(reference_.slots().priorities[slot])));
      for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
        REQUIRE(image.steps[set].weights[slot] == reference_trees_[set]->sums[slot]);
      }
    }
    for (uint64_t set = 0; set < MirroredSteps::kSets; ++set) {
      CHECK(image.steps[set].weights_total == reference_trees_[set]->sums.total());
    }
  }

  void expect_same_steps(const MirrorImage::Steps& seen, const store::Drawable& wanted) {
    uint64_t word = 0;
    for (uint32_t p = 0; p < options_.index.num_pages; ++p) {
      CAPTURE(p);
      for (const uint64_t bits : wanted.bits().words(p)) {
        REQUIRE(seen.words.at(word++) == bits);
      }
      REQUIRE(seen.counts[p] == wanted.counts()[p]);
    }
    CHECK(seen.counts_total == wanted.counts().total());
  }

  void expect_settled() {
    mirror_->settle();
    CHECK_FALSE(mirror_->ahead());
    const store::IndexState& wanted = reference_.state();
    const store::IndexState& state = index_.state();
    CHECK(state.max_priority == wanted.max_priority);
    CHECK(state.num_steps == wanted.num_steps);
    CHECK(state.counters.stale_updates == wanted.counters.stale_updates);
    for (uint64_t slot = 0; slot < reference_.num_slots(); ++slot) {
      REQUIRE(std::bit_cast<uint32_t>(index_.slots().priorities[slot]) ==
              std::bit_cast<uint32_t>(reference_.slots().priorities[slot]));
      if (cpu_tree_) {
        REQUIRE(cpu_tree_->sums[slot] == cpu_reference_tree_->sums[slot]);
      }
    }
    for (uint32_t e = wanted.oldest; e != store::kNone; e = wanted.episodes[e].newer) {
      CAPTURE(e);
      REQUIRE(state.episodes[e].uid == wanted.episodes[e].uid);
      REQUIRE((state.episodes[e].priority_sum == wanted.episodes[e].priority_sum));
      REQUIRE(state.episodes[e].weight == wanted.episodes[e].weight);
      REQUIRE(store::episode_priority(state, state.episodes[e]) ==
              store::episode_priority(wanted, wanted.episodes[e]));
    }
    store::check_index(index_);
  }

  Options options_;
  uint64_t page_steps_;
  store::Index reference_;
  store::Index index_;
  MirroredSteps reference_sets_;
  MirroredSteps sets_;
  std::vector<std::shared_ptr<store::Drawable>> steps_;  // of the reference
  RequireWeights require_;
  TakeImage take_;
  std::shared_ptr<store::Mirror> mirror_;
  std::vector<std::shared_ptr<const store::WeightTree>> reference_trees_;
  std::shared_ptr<const store::WeightTree> cpu_reference_tree_;
  std::shared_ptr<const store::WeightTree> cpu_tree_;
  std::vector<uint32_t> open_ = std::vector<uint32_t>(4, store::kNone);
  std::vector<int64_t> ids_;
  uint64_t counter_ = 0;
};

}  // namespace gear::tests

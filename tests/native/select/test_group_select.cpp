// Groups of indexes, one a rank, against one index that holds what all of them hold.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "expect_message.h"
#include "group_content.h"
#include "select/chance.h"
#include "select/group/own_draws.h"
#include "select/importance.h"
#include "select/sampler.h"
#include "tries.h"

using namespace gear::select;
using namespace gear::store;
using namespace gear::testing;

namespace {

std::vector<Step> steps_of(const GroupContent& content, const Selection& chosen) {
  std::vector<Step> steps;
  for (const Anchor& anchor : chosen.anchors) {
    steps.push_back(content.step_of_whole(anchor));
  }
  return steps;
}

SamplerOptions options_of(Policy policy, Unit unit = Unit::kStep) {
  SamplerOptions options;
  options.policy = policy;
  options.unit = unit;
  options.seed = 5;
  return options;
}

bool by_age(Policy policy) { return policy == Policy::kFifo || policy == Policy::kLifo; }

constexpr uint32_t kSizes[] = {1, 2, 3, 4, 8};
constexpr Policy kAll[] = {Policy::kUniform, Policy::kWeighted, Policy::kSequential,
                           Policy::kFifo,    Policy::kLifo,     Policy::kTopK};

}  // namespace

TEST_CASE("a group draws what one buffer with the content of all ranks draws") {
  for (const Policy policy : kAll) {
    for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
      for (const uint32_t size : kSizes) {
        CAPTURE(static_cast<int>(policy));
        CAPTURE(static_cast<int>(unit));
        CAPTURE(size);
        GroupContent content(
            size, 40 + size,
            by_age(policy) ? GroupContent::Single::kInTurn : GroupContent::Single::kRankByRank);
        const SamplerOptions options = options_of(policy, unit);
        GroupOfSamplers group(content, options);
        const auto single = std::make_unique<Sampler>(options, *content.whole);
        // More than a part of the draws, and more than there are of what is finite.
        for (const uint64_t count : {16 * size, 5 * size, 9000U, 16 * size}) {
          Selection chosen;
          single->select(*content.whole, count, chosen);
          const GroupOfSamplers::Batch batch = group.select(count);
          REQUIRE(batch.steps == steps_of(content, chosen));
          REQUIRE(batch.probabilities == chosen.probabilities);
          std::vector<float> weights(chosen.size());
          if (!batch.steps.empty()) {
            const float least =
                *std::min_element(batch.probabilities.begin(), batch.probabilities.end());
            set_importance(batch.beta, least, batch.probabilities, weights);
          }
          REQUIRE(weights == chosen.weights);
          for (const auto& sampler : group.samplers) {
            REQUIRE(sampler->law().position().numbers == single->law().position().numbers);
            REQUIRE(sampler->law().position().beta == single->law().position().beta);
          }
          for (size_t i = 0; i < chosen.size(); ++i) {  // other priorities from here on
            const auto priority = static_cast<float>(random_below(count, i, 40)) / 8;
            Index& rank = *content.ranks[batch.owners[i]];
            const int64_t id = rank.id(batch.anchors[i], unit);
            rank.update({&id, 1}, {&priority, 1});
            const int64_t id_in_whole = content.whole->id(chosen.anchors[i], unit);
            content.whole->update({&id_in_whole, 1}, {&priority, 1});
          }
        }
        uint64_t sampled = 0;
        for (const auto& rank : content.ranks) {
          sampled += rank->take_draws().draws;
        }
        CHECK(sampled == content.whole->take_draws().draws);
      }
    }
  }
}

TEST_CASE("a group empties buffers with max_times_sampled as one buffer does, by order") {
  for (const Policy policy : {Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
      for (const uint32_t size : kSizes) {
        CAPTURE(static_cast<int>(policy));
        CAPTURE(size);
        GroupContent content(
            size, 60 + size,
            by_age(policy) ? GroupContent::Single::kInTurn : GroupContent::Single::kRankByRank, 2);
        GroupOfSamplers group(content, options_of(policy, unit));
        const auto single = std::make_unique<Sampler>(options_of(policy, unit), *content.whole);
        for (;;) {
          Selection chosen;
          single->select(*content.whole, 24, chosen);
          if (chosen.size() == 0) {
            break;
          }
          REQUIRE(group.select(24).steps == steps_of(content, chosen));
          content.whole->deliver(content.whole->take_draws());
          for (const auto& rank : content.ranks) {
            rank->deliver(rank->take_draws());
          }
        }
        expect_message<gear::base::InvalidArgument>([&] { group.select(24); }, "no rank offers");
      }
    }
  }
  GroupContent content(2, 1, GroupContent::Single::kRankByRank, 1);
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential}) {
    expect_message<gear::base::InvalidArgument>(
        [&] { GroupOfSamplers(content, options_of(policy)); }, "max_times_sampled 1",
        "use Fifo, Lifo or TopK");
  }
}

TEST_CASE("a sequential epoch over ranks gives every item once, and ends on all of them") {
  for (const uint32_t size : kSizes) {
    for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
      for (const bool shuffle : {true, false}) {
        for (const bool drop_last : {true, false}) {
          GroupContent content(size, 80 + size, GroupContent::Single::kRankByRank);
          SamplerOptions options = options_of(Policy::kSequential, unit);
          options.shuffle = shuffle;
          options.drop_last = drop_last;
          GroupOfSamplers group(content, options);
          uint64_t offered = 0;
          for (const auto& rank : content.ranks) {
            offered +=
                (unit == Unit::kStep ? rank->steps().counts() : rank->drawables().heads()).total();
          }
          const uint64_t count = 3 * size;
          std::vector<std::vector<Step>> epochs(3);
          for (std::vector<Step>& epoch : epochs) {
            uint64_t batches = 0;
            for (;; ++batches) {
              const std::vector<Step> steps = group.select(count).steps;
              if (steps.empty()) {
                break;
              }
              epoch.insert(epoch.end(), steps.begin(), steps.end());
            }
            CHECK(batches == batches_per_epoch(options, offered, count));
            CHECK(epoch.size() == (drop_last ? offered / count * count : offered));
            CHECK(std::set<Step>(epoch.begin(), epoch.end()).size() == epoch.size());
            CHECK((shuffle || std::is_sorted(epoch.begin(), epoch.end())));
          }
          CHECK((!shuffle || epochs[0] != epochs[1]));
          CHECK(group.samplers[0]->law().position().numbers.at(1) == 3);
        }
      }
    }
  }
}

TEST_CASE("a sequential epoch is given up on all ranks when the content of one changes") {
  for (const bool shuffle : {true, false}) {
    GroupContent content(3, 7, GroupContent::Single::kRankByRank);
    SamplerOptions options = options_of(Policy::kSequential);
    options.shuffle = shuffle;
    GroupOfSamplers group(content, options);
    group.select(6);
    Index& changing = *content.ranks[1];
    const float priority = 1;
    uint32_t e = kNone;
    changing.next_page(e);
    changing.attach_page(e);
    changing.append(e, {&priority, 1});
    expect_message<gear::base::InvalidArgument>([&] { group.select(6); }, "in the middle",
                                                "the next epoch begins");
    uint64_t offered = 0;
    for (const auto& rank : content.ranks) {
      offered += rank->steps().counts().total();
    }
    CHECK(group.select(100000).steps.size() == offered);
    CHECK(group.select(100000).steps.empty());
  }
}

TEST_CASE("a group continues from a position with the same draws") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential}) {
    for (const bool shuffle : {true, false}) {
      GroupContent content(3, 3, GroupContent::Single::kRankByRank);
      SamplerOptions options = options_of(policy);
      options.shuffle = shuffle;
      GroupOfSamplers first(content, options);
      GroupOfSamplers second(content, options);
      first.select(20);
      for (size_t rank = 0; rank < 3; ++rank) {
        second.samplers[rank]->law().restore(first.samplers[rank]->law().position());
      }
      for (int i = 0; i < 4; ++i) {
        CHECK(first.select(9).steps == second.select(9).steps);
      }
    }
  }
}

TEST_CASE("beta belongs to the draw") {
  GroupContent content(2, 3, GroupContent::Single::kRankByRank);
  GroupOfSamplers group(content, options_of(Policy::kWeighted));
  CHECK(group.select(4).beta == 0.4);
  for (const auto& sampler : group.samplers) {
    sampler->law().set_beta(0.9);
  }
  CHECK(group.select(4).beta == 0.9);
  CHECK_THROWS_AS(group.samplers[0]->law().set_beta(-1), gear::base::InvalidArgument);
  GroupOfSamplers uniform(content, options_of(Policy::kUniform));
  CHECK(uniform.select(4).beta == 0);
  expect_message<gear::base::InvalidArgument>([&] { uniform.samplers[0]->law().set_beta(1); },
                                              "only the Weighted");
}

TEST_CASE("draws over very unequal shards have the probabilities that they say") {
  const uint64_t draws = tries(200000);
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted}) {
    // Ten of eleven episodes are the first rank's; the last has none.
    GroupContent content(4, 11, GroupContent::Single::kRankByRank);
    SamplerOptions options = options_of(policy);
    options.alpha = 1;
    GroupOfSamplers group(content, options);
    std::map<Step, std::pair<double, double>> counts;  // and probability
    for (uint64_t done = 0; done < draws; done += 1000) {
      const GroupOfSamplers::Batch batch = group.select(1000);
      for (size_t i = 0; i < batch.steps.size(); ++i) {
        auto& [count, probability] = counts[batch.steps[i]];
        count += 1;
        probability = static_cast<double>(batch.probabilities[i]);
      }
    }
    double sum = 0;
    double chi_square = 0;
    for (const auto& [step, seen] : counts) {
      const double expected = seen.second * static_cast<double>(draws);
      sum += seen.second;
      chi_square += (seen.first - expected) * (seen.first - expected) / expected;
    }
    // Priority 0 keeps a chance of 2^-24 or so: that of those never drawn.
    CHECK(std::fabs(sum - 1) < 1e-4);
    const auto degrees = static_cast<double>(counts.size() - 1);
    CHECK(chi_square < degrees + 4 * std::sqrt(2 * degrees));
    CHECK(chi_square > degrees - 4 * std::sqrt(2 * degrees));
  }
}

TEST_CASE("a group with nothing to draw says so on every rank") {
  GroupContent content(3, 1, GroupContent::Single::kRankByRank);
  for (auto& rank : content.ranks) {
    rank = std::make_unique<Index>(IndexOptions{4, kRankPageSteps});
  }
  for (const Policy policy : kAll) {
    GroupOfSamplers group(content, options_of(policy));
    expect_message<gear::base::InvalidArgument>([&] { group.select(8); },
                                                "no rank offers anything");
  }
}

namespace {

// Draws whose targets are given.
class Given final : public Chance {
 public:
  explicit Given(std::vector<uint64_t> targets) : targets_(std::move(targets)) {}

  uint64_t next(uint64_t, uint64_t, uint64_t count) override { return count; }
  void targets(uint64_t first, std::span<uint64_t> out) const override {
    std::copy_n(targets_.begin() + static_cast<ptrdiff_t>(first), out.size(), out.begin());
  }
  size_t scan(const gear::base::RangePart& part, uint64_t first, uint32_t some, uint32_t* numbers,
              uint64_t* offsets) const override {
    size_t kept = 0;
    for (uint64_t draw = first; draw < first + some; ++draw) {
      if (targets_[draw] >= part.begin && targets_[draw] < part.begin + part.size) {
        numbers[kept] = static_cast<uint32_t>(draw);
        offsets[kept++] = targets_[draw] - part.begin;
      }
    }
    return kept;
  }
  Position position() const override { return {}; }
  void restore(std::span<const uint64_t>) override {}

 private:
  std::vector<uint64_t> targets_;
};

// In units of one.
std::vector<RankTotal> offers_of(const std::vector<uint64_t>& totals) {
  std::vector<RankTotal> offers;
  for (const uint64_t total : totals) {
    offers.push_back({total, 0});
  }
  return offers;
}

// Items that are where their targets are.
struct Located {
  void resolve(const Index&, std::span<const uint64_t> targets, double, Anchor* anchors,
               float* probabilities) const {
    for (size_t i = 0; i < targets.size(); ++i) {
      anchors[i] = {static_cast<uint32_t>(targets[i]), 0};
      probabilities[i] = 1.0F / static_cast<float>(2 + targets[i]);
    }
  }
};

}  // namespace

TEST_CASE("own draws: those that fall on the rank, and how far into its range") {
  const Index index(IndexOptions{4, kRankPageSteps});
  OwnDraws draws(4);
  draws.set_offers(offers_of(std::vector<uint64_t>(6, 100)));  // replaced
  draws.set_offers(offers_of(std::vector<uint64_t>{3, 0, 1, 0, 2, 0}));
  REQUIRE(draws.all() == 6);
  REQUIRE(draws.begin() == 4);
  REQUIRE(draws.size() == 2);
  constexpr uint64_t kCount = 5;
  const Given chance({0, 5, 2, 3, 4});
  GroupDraw drawn;
  draws.draw(kCount, chance, index, Located{}, drawn);
  CHECK(drawn.own_draws == std::vector<uint32_t>{1, 4});
  REQUIRE(drawn.own.size() == 2);
  CHECK(drawn.own.anchors[0].page == 1);
  CHECK(drawn.own.anchors[1].page == 0);
  CHECK(drawn.least == 1.0F / 3);
  draws.draw(1, chance, index, Located{}, drawn);
  CHECK(drawn.own.size() == 0);
  CHECK(drawn.least == GroupDraw::kNone);
  draws.set_offers(offers_of(std::vector<uint64_t>{3, 0, 1, 0, 0, 2}));  // nothing lies here
  draws.draw(kCount, chance, index, Located{}, drawn);
  CHECK(drawn.own.size() == 0);
  const uint64_t half = uint64_t{1} << 62;
  draws.set_offers(offers_of({half, half - 1, 0, 0, 0, 0}));
  CHECK(draws.all() == 2 * half - 1);
  draws.set_offers(offers_of({half, half, 0, 0, half, 1}));  // too much to be added up: coarser
  CHECK(draws.all() == half / 2 * 3 + 1);
  CHECK(draws.size() == half / 2);
}

namespace {

// Items that are where their targets are, of any size.
struct AnyTotal {
  void resolve(const Index&, std::span<const uint64_t> targets, double all, Anchor* anchors,
               float* probabilities) const {
    for (size_t i = 0; i < targets.size(); ++i) {
      anchors[i] = {static_cast<uint32_t>(targets[i]), static_cast<uint32_t>(targets[i] >> 32)};
      probabilities[i] = one_of(all);
    }
  }
};

// What all ranks of these totals draw together: by draw, the rank and the target in its range.
std::vector<std::pair<uint32_t, uint64_t>> drawn_by_all(const std::vector<uint64_t>& totals,
                                                        uint64_t count, const Chance& law) {
  const Index index(IndexOptions{4, kRankPageSteps});
  std::vector<std::pair<uint32_t, uint64_t>> all(count, {UINT32_MAX, 0});
  for (uint32_t rank = 0; rank < totals.size(); ++rank) {
    OwnDraws own(rank);
    own.set_offers(offers_of(totals));
    GroupDraw drawn;
    own.draw(count, law, index, AnyTotal{}, drawn);
    for (size_t i = 0; i < drawn.own_draws.size(); ++i) {
      const Anchor& at = drawn.own.anchors[i];
      REQUIRE(all[drawn.own_draws[i]].first == UINT32_MAX);
      all[drawn.own_draws[i]] = {rank, uint64_t{at.row} << 32 | at.page};
    }
  }
  return all;
}

}  // namespace

TEST_CASE("own draws: ranks whose units differ are drawn by what they offer, and each evenly") {
  // 8 / 2^3, 3, nothing, 40 / 2^4 (cut to 2 by the units of all), and next to nothing: 1 of them.
  const std::vector<RankTotal> offers = {{8, 3}, {3, 0}, {0, -7}, {40, 4}, {5, 90}};
  const std::vector<uint64_t> widths = {1, 3, 0, 2, 1};
  constexpr uint64_t kCount = 70000;
  const Index index(IndexOptions{4, kRankPageSteps});
  uint64_t drawn_in_all = 0;
  for (uint32_t rank = 0; rank < offers.size(); ++rank) {
    CAPTURE(rank);
    OwnDraws own(rank);
    own.set_offers(offers);
    REQUIRE(own.all() == 7);
    REQUIRE(own.size() == widths[rank]);
    Independent law(11);
    REQUIRE(law.next(own.all(), 0, kCount) == kCount);
    GroupDraw drawn;
    own.draw(kCount, law, index, AnyTotal{}, drawn);
    drawn_in_all += drawn.own.size();
    const double expected = static_cast<double>(kCount * widths[rank]) / 7;
    CHECK(std::fabs(static_cast<double>(drawn.own.size()) - expected) <= 4 * std::sqrt(expected));
    std::vector<double> places(offers[rank].total);
    for (const Anchor& at : drawn.own.anchors) {
      REQUIRE(at.page < places.size());
      places[at.page] += 1;
    }
    for (const double found : places) {
      const double each = expected / static_cast<double>(places.size());
      CHECK(std::fabs(found - each) <= 5 * std::sqrt(each));
    }
    // With a probability in the rank's own units, all of them add up to what it was drawn by.
    if (!drawn.own.probabilities.empty()) {
      const double all = std::ldexp(7.0, offers[rank].shift);
      CHECK(drawn.own.probabilities[0] == static_cast<float>(1 / all));
    }
  }
  CHECK(drawn_in_all == kCount);
}

TEST_CASE("own draws: whatever the ranks offer, each draw is found by the rank that it falls on") {
  constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;
  uint64_t seed = 0;
  const auto below = [&](uint64_t range) { return random_below(++seed, 0, range); };
  for (uint64_t round = 0; round < tries(60); ++round) {
    std::vector<uint64_t> totals(1 + below(70));
    uint64_t room = round % 4 == 0 ? kMost : uint64_t{1} << below(63);
    for (uint64_t& total : totals) {  // empty ones, and one that has nearly all
      total = below(3) == 0 ? 0 : below(round % 3 == 0 ? room : room / totals.size() + 1);
      room -= total;
    }
    if (round % 4 == 0) {
      totals.back() += room;  // 2^63 - 1 in all
    }
    const uint64_t all = std::accumulate(totals.begin(), totals.end(), uint64_t{0});
    if (all == 0) {
      continue;
    }
    Independent law(round);
    law.restore(std::vector<uint64_t>{below(uint64_t{1} << 40)});
    const uint64_t count = round == 1 ? uint64_t{1} << 20 : 1 + below(9000);
    std::vector<uint64_t> targets(count);
    law.next(all, 0, count);
    law.targets(0, targets);
    const auto found = drawn_by_all(totals, count, law);
    for (uint64_t n = 0; n < count; ++n) {
      uint32_t owner = 0;
      uint64_t target = targets[n];
      while (target >= totals[owner]) {
        target -= totals[owner++];
      }
      REQUIRE(found[n] == std::pair(owner, target));
    }
  }
}

TEST_CASE("own draws: 64 ranks draw their shares of what they offer") {
  std::vector<uint64_t> totals;
  for (uint64_t r = 0; r < 64; ++r) {
    totals.push_back(r % 7 == 3 ? 0 : 1 + (r * r) % 97);
  }
  totals[5] = 5000;  // as much as all others together, or so
  const auto all = static_cast<double>(std::accumulate(totals.begin(), totals.end(), uint64_t{0}));
  const uint64_t count = tries(400'000);
  std::vector<uint64_t> found(totals.size());
  Independent law(3);
  law.next(std::accumulate(totals.begin(), totals.end(), uint64_t{0}), 0, count);
  for (const auto& [rank, target] : drawn_by_all(totals, count, law)) {
    ++found[rank];
  }
  double chi_square = 0;
  double degrees = -1;
  for (size_t r = 0; r < totals.size(); ++r) {
    if (totals[r] == 0) {
      CHECK(found[r] == 0);
      continue;
    }
    const double expected = static_cast<double>(totals[r]) / all * static_cast<double>(count);
    const double off = static_cast<double>(found[r]) - expected;
    chi_square += off * off / expected;
    degrees += 1;
  }
  CHECK(chi_square < degrees + 4 * std::sqrt(2 * degrees));
  CHECK(chi_square > degrees - 4 * std::sqrt(2 * degrees));
}

TEST_CASE("a group by order takes as many from each rank, numbered or not") {
  for (const Policy policy : {Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    for (const uint32_t size : kSizes) {
      GroupContent content(size, 20 + size, GroupContent::Single::kInTurn);
      GroupOfSamplers numbered(content, options_of(policy));
      GroupOfSamplers counted(content, options_of(policy));
      for (const uint64_t count : {5 * size, 600U}) {  // of more than one round
        const auto first = numbered.select_on_all(count, true);
        const auto second = counted.select_on_all(count, false);
        for (uint32_t rank = 0; rank < size; ++rank) {
          REQUIRE(first[rank].own.size() == second[rank].own.size());
          for (size_t i = 0; i < first[rank].own.size(); ++i) {
            REQUIRE(content.step_of_rank(rank, first[rank].own.anchors[i]) ==
                    content.step_of_rank(rank, second[rank].own.anchors[i]));
          }
          REQUIRE(first[rank].counts == second[rank].counts);
          REQUIRE(second[rank].own_draws.empty());
        }
      }
    }
  }
}

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <vector>

#include "base/errors.h"
#include "expect_message.h"
#include "index_view.h"
#include "select/order.h"
#include "select/sampler.h"
#include "store/drawable/fixed_point.h"

using namespace gear::select;
using namespace gear::store;
using gear::testing::expect_message;

namespace {

// Adds a terminated episode with these priorities; returns its slot in the index.
uint32_t add_episode(Index& index, const std::vector<float>& priorities, bool ends = true) {
  uint32_t e = kNone;
  for (const float priority : priorities) {
    if (!has_room(index, e)) {
      index.next_page(e);
      index.attach_page(e);
    }
    index.append(e, {&priority, 1});
  }
  if (ends) {
    index.end_episode(e, EpisodeState::kTerminated, -1.0, 0);
  }
  return e;
}

// Three episodes in pages of 4 steps: pages 0 1 | 2 | 3 4 5, and an open one in page 6. Priorities
// 0, 1, 2 ... in the order of the slots, as far as there are steps.
std::unique_ptr<Index> make_index(uint32_t max_times_sampled = 0) {
  auto made = std::make_unique<Index>(IndexOptions{16, 4, 0, Evict::kFifo, max_times_sampled});
  Index& index = *made;
  add_episode(index, {0, 1, 2, 3, 4, 5});
  add_episode(index, {6, 7});
  add_episode(index, {8, 9, 10, 11, 12, 13, 14, 15, 16});
  add_episode(index, {17, 18}, false);
  return made;
}

constexpr uint64_t kNumSteps = 19;
constexpr uint64_t kNumEnded = 3;

SamplerOptions options_of(Policy policy, Unit unit = Unit::kStep, uint64_t seed = 1) {
  SamplerOptions options;
  options.policy = policy;
  options.unit = unit;
  options.seed = seed;
  return options;
}

Selection select(Sampler& sampler, Index& index, uint64_t count) {
  Selection out;
  sampler.select(index, count, out);
  REQUIRE(out.probabilities.size() == out.size());
  REQUIRE(out.weights.size() == out.size());
  for (const Anchor& anchor : out.anchors) {
    REQUIRE((out.unit == Unit::kEpisode || anchor.row < index.page(anchor.page).anchors));
  }
  return out;
}

// The priorities of the steps chosen; make_index() gives each step one of its own.
std::vector<int> steps_of(const Index& index, const Selection& chosen) {
  std::vector<int> steps;
  for (const Anchor& anchor : chosen.anchors) {
    steps.push_back(static_cast<int>(index.priority(anchor)));
  }
  return steps;
}

// 3.09 standard deviations above the mean: p = 0.001 (Wilson and Hilferty).
double chi_square_limit(double degrees) {
  const double spread = 2 / (9 * degrees);
  return degrees * std::pow(1 - spread + 3.09 * std::sqrt(spread), 3);
}

// Draws `draws` steps in batches and compares their counts with `wanted` probabilities.
void expect_distribution(Sampler& sampler, Index& index, uint64_t draws,
                         const std::vector<double>& wanted) {
  std::vector<double> counts(wanted.size(), 0);
  for (uint64_t done = 0; done < draws; done += 1000) {
    const Selection chosen = select(sampler, index, 1000);
    REQUIRE(chosen.size() == 1000);
    const std::vector<int> steps = steps_of(index, chosen);
    for (size_t i = 0; i < steps.size(); ++i) {
      counts[static_cast<size_t>(steps[i])] += 1;
      const double probability = wanted[static_cast<size_t>(steps[i])];
      REQUIRE(std::fabs(static_cast<double>(chosen.probabilities[i]) / probability - 1) < 1e-6);
    }
  }
  double chi_square = 0;
  double degrees = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double expected = wanted[i] * static_cast<double>(draws);
    if (expected < 5) {
      continue;  // priority 0 keeps a chance of 2^-24: too rare to count
    }
    degrees += 1;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  CHECK(chi_square < chi_square_limit(degrees));
}

}  // namespace

TEST_CASE("uniform draws every step equally often") {
  const auto made = make_index();
  Index& index = *made;
  const auto sampler = std::make_unique<Sampler>(options_of(Policy::kUniform), index);
  expect_distribution(*sampler, index, 100000,
                      std::vector<double>(kNumSteps, 1.0 / static_cast<double>(kNumSteps)));
}

TEST_CASE("uniform draws every ended episode equally often, and names its head") {
  const auto made = make_index();
  Index& index = *made;
  const auto sampler =
      std::make_unique<Sampler>(options_of(Policy::kUniform, Unit::kEpisode), index);
  std::vector<int> counts(9, 0);
  for (const int step : steps_of(index, select(*sampler, index, 9000))) {
    ++counts[step % 9];
  }
  CHECK(counts[0] + counts[6] + counts[8] == 9000);  // the first steps of the episodes
  for (const int step : {0, 6, 8}) {
    CHECK(std::abs(counts[step] - 3000) < 150);
  }
}

TEST_CASE("weighted draws in proportion to p^alpha") {
  const auto made = make_index();
  Index& index = *made;
  for (const double alpha : {0.0, 0.6, 1.0, 2.0}) {
    SamplerOptions options = options_of(Policy::kWeighted);
    options.alpha = alpha;
    const auto sampler = std::make_unique<Sampler>(options, index);
    std::vector<double> wanted;
    double sum = 0;
    for (uint64_t step = 0; step < kNumSteps; ++step) {
      bool saturated = false;
      wanted.push_back(static_cast<double>(
          fixed_weight(static_cast<float>(step), weight_scale(kNumSteps, alpha, 40), saturated)));
      sum += wanted.back();
    }
    for (double& probability : wanted) {
      probability /= sum;
    }
    expect_distribution(*sampler, index, 100000, wanted);
  }
}

TEST_CASE("importance weights are (P / least P of the batch)^-beta") {
  const auto made = make_index();
  Index& index = *made;
  SamplerOptions options = options_of(Policy::kWeighted);
  for (const double beta : {0.0, 0.4, 1.0, 1000.0}) {
    options.beta = beta;
    const auto sampler = std::make_unique<Sampler>(options, index);
    const Selection chosen = select(*sampler, index, 64);
    const float least = *std::min_element(chosen.probabilities.begin(), chosen.probabilities.end());
    for (size_t i = 0; i < chosen.size(); ++i) {
      const double wanted = std::pow(static_cast<double>(chosen.probabilities[i] / least), -beta);
      REQUIRE(chosen.weights[i] >= 0.0F);
      REQUIRE(chosen.weights[i] <= 1.0F);
      REQUIRE(std::fabs(static_cast<double>(chosen.weights[i]) - wanted) < 1e-5);
    }
    CHECK(sampler->law().position().beta == beta);
  }
  options.beta = 0.5;
  options.normalize = Normalize::kBuffer;
  const auto by_all = std::make_unique<Sampler>(options, index);
  // Of all, the step with the least priority above 0 is drawn least, whether it was drawn or not.
  const auto powers = [&](double priority) { return std::pow(priority, options.alpha); };
  const Selection few = select(*by_all, index, 3);
  for (size_t i = 0; i < few.size(); ++i) {
    const double wanted =
        std::pow(powers(static_cast<double>(index.priority(few.anchors[i]))) / powers(1), -0.5);
    CHECK(std::fabs(static_cast<double>(few.weights[i]) - wanted) < 1e-5);
  }
  const auto weighted = std::make_unique<Sampler>(options, index);
  weighted->law().set_beta(0.0);
  for (const float weight : select(*weighted, index, 10).weights) {
    CHECK(weight == 1.0F);
  }
  CHECK_THROWS_AS(weighted->law().set_beta(-0.1), gear::base::InvalidArgument);
  const auto uniform = std::make_unique<Sampler>(options_of(Policy::kUniform), index);
  expect_message<gear::base::InvalidArgument>([&] { uniform->law().set_beta(1.0); },
                                              "only the Weighted");
}

TEST_CASE("a sampler with the same seed and position continues with the same draws") {
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential}) {
    for (const Unit unit : {Unit::kStep, Unit::kEpisode}) {
      const auto made = make_index();
      Index& index = *made;
      const auto first = std::make_unique<Sampler>(options_of(policy, unit), index);
      const auto second = std::make_unique<Sampler>(options_of(policy, unit), index);
      const auto other = std::make_unique<Sampler>(options_of(policy, unit, 2), index);
      select(*first, index, 2);
      second->law().restore(first->law().position());
      for (int i = 0; i < 5; ++i) {
        CHECK(steps_of(index, select(*first, index, 7)) ==
              steps_of(index, select(*second, index, 7)));
      }
      if (unit == Unit::kEpisode) {
        continue;
      }
      other->law().restore({});
      first->law().restore({});
      CHECK(steps_of(index, select(*first, index, 7)) != steps_of(index, select(*other, index, 7)));
    }
  }
}

TEST_CASE("fifo and lifo give one end of the content, and all of it when asked for more") {
  const auto made = make_index();
  Index& index = *made;
  const auto fifo = std::make_unique<Sampler>(options_of(Policy::kFifo), index);
  const auto lifo = std::make_unique<Sampler>(options_of(Policy::kLifo), index);
  CHECK(steps_of(index, select(*fifo, index, 8)) == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(steps_of(index, select(*fifo, index, 2)) == std::vector{0, 1});
  CHECK(steps_of(index, select(*lifo, index, 4)) == std::vector{18, 17, 16, 15});
  CHECK(select(*fifo, index, 1000).size() == kNumSteps);
  CHECK(select(*lifo, index, 1000).size() == kNumSteps);
  const auto oldest = std::make_unique<Sampler>(options_of(Policy::kFifo, Unit::kEpisode), index);
  const auto newest = std::make_unique<Sampler>(options_of(Policy::kLifo, Unit::kEpisode), index);
  CHECK(steps_of(index, select(*oldest, index, 2)) == std::vector{0, 6});
  CHECK(steps_of(index, select(*newest, index, 9)) == std::vector{8, 6, 0});
}

TEST_CASE("topk gives the largest priorities, the lower slot first among equals") {
  const auto made = make_index();
  Index& index = *made;
  const auto steps = std::make_unique<Sampler>(options_of(Policy::kTopK), index);
  CHECK(steps_of(index, select(*steps, index, 3)) == std::vector{18, 17, 16});
  CHECK(select(*steps, index, 1000).size() == kNumSteps);
  const auto episodes = std::make_unique<Sampler>(options_of(Policy::kTopK, Unit::kEpisode), index);
  CHECK(steps_of(index, select(*episodes, index, 2)) == std::vector{8, 6});
  const std::vector<int64_t> ids = {index.id({3, 1}, Unit::kStep), index.id({0, 2}, Unit::kStep),
                                    index.id({0, 0}, Unit::kEpisode)};
  index.update(ids, std::vector<float>{50, 50, 60});
  const Selection chosen = select(*steps, index, 2);
  CHECK((chosen.anchors[0].page == 0 && chosen.anchors[1].page == 3));
  CHECK(select(*episodes, index, 1).anchors[0].page == 0);
  SamplerOptions reaching = options_of(Policy::kTopK);
  reaching.lookahead = 1;  // not the last step of the open episode
  CHECK(select(*std::make_unique<Sampler>(reaching, index), index, 1000).size() == kNumSteps - 1);
  CHECK(select(*steps, index, 1000).size() == kNumSteps);
}

TEST_CASE("max_times_sampled empties the buffer draw by draw, under every policy") {
  for (const Policy policy :
       {Policy::kUniform, Policy::kWeighted, Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    CAPTURE(static_cast<int>(policy));
    const auto made = make_index(2);
    Index& index = *made;
    const auto sampler = std::make_unique<Sampler>(options_of(policy), index);
    std::vector<int> times(kNumSteps, 0);
    const bool zero_is_drawn = policy != Policy::kWeighted;  // the first step's priority
    for (uint64_t drawn = 0; drawn < 2 * kNumSteps - (zero_is_drawn ? 0 : 2);) {
      const Selection chosen = select(*sampler, index, 5);
      REQUIRE(chosen.size() > 0);
      for (const int step : steps_of(index, chosen)) {
        ++times[static_cast<size_t>(step)];
      }
      index.deliver(index.take_draws());
      drawn += chosen.size();
    }
    std::vector<int> wanted(kNumSteps, 2);
    wanted[0] = zero_is_drawn ? 2 : 0;
    CHECK(times == wanted);
    if (!zero_is_drawn) {
      CHECK_THROWS_AS(select(*sampler, index, 5), gear::base::InvalidArgument);
      continue;
    }
    CHECK(select(*sampler, index, 5).size() == 0);
    CHECK(index.state().num_episodes == 1);  // the open one
  }
  const auto made = make_index(2);
  Index& index = *made;
  const auto episodes =
      std::make_unique<Sampler>(options_of(Policy::kUniform, Unit::kEpisode), index);
  CHECK(select(*episodes, index, 100).size() == 2 * kNumEnded);
}

namespace {

// Keeps out the steps of make_index() whose priority is not one of `left`.
std::shared_ptr<Mask> mask_of_all_but(Index& index, const std::set<int>& left) {
  const std::shared_ptr<Mask> mask = index.make_mask();
  std::vector<int64_t> out;
  for (uint32_t p = 0; p < index.options().num_pages; ++p) {
    for (uint32_t row = 0; row < index.page(p).anchors; ++row) {
      if (!left.contains(static_cast<int>(index.priority({p, row})))) {
        out.push_back(index.id({p, row}, Unit::kStep));
      }
    }
  }
  CHECK(index.mark(*mask, out, false) == out.size());
  return mask;
}

}  // namespace

TEST_CASE("what a mask keeps out weighs nothing under every law, and costs no draw") {
  const std::set<int> left = {1, 2, 5, 8, 15, 18};
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted, Policy::kSequential,
                              Policy::kFifo, Policy::kLifo, Policy::kTopK}) {
    CAPTURE(static_cast<int>(policy));
    const auto made = make_index();
    Index& index = *made;
    SamplerOptions options = options_of(policy);
    options.mask = mask_of_all_but(index, left);
    const auto sampler = std::make_unique<Sampler>(options, index);
    CHECK(counted(options, index).total() == left.size());
    std::set<int> found;
    const bool endless = policy == Policy::kUniform || policy == Policy::kWeighted;
    const uint64_t count = endless ? 100 : left.size();
    const Selection chosen = select(*sampler, index, count);
    REQUIRE(chosen.size() == count);
    CHECK(index.take_draws().draws == count);
    if (endless) {
      CHECK(sampler->law().position().numbers.at(0) == count);
    }
    for (const int step : steps_of(index, chosen)) {
      CHECK(left.contains(step));
      found.insert(step);
    }
    CHECK(found == left);
  }
}

TEST_CASE("uniform and weighted draws through a mask are those of what it lets in") {
  const auto made = make_index();
  Index& index = *made;
  const std::set<int> left = {1, 2, 5, 8, 15, 18};
  for (const double alpha : {0.0, 1.0}) {
    CAPTURE(alpha);
    SamplerOptions options = options_of(alpha > 0 ? Policy::kWeighted : Policy::kUniform);
    options.alpha = alpha;
    options.mask = mask_of_all_but(index, left);
    std::vector<double> wanted(kNumSteps, 0);
    double all = 0;
    for (const int step : left) {
      all += alpha > 0 ? step : 1;
    }
    for (const int step : left) {
      wanted[static_cast<size_t>(step)] = (alpha > 0 ? step : 1) / all;
    }
    const auto sampler = std::make_unique<Sampler>(options, index);
    expect_distribution(*sampler, index, 20000, wanted);
  }
}

TEST_CASE("a mask lets in what is marked again and what is appended, of that look-ahead alone") {
  const auto made = make_index();
  Index& index = *made;
  const std::shared_ptr<Mask> mask = mask_of_all_but(index, {});
  const auto masked = index.steps(0, mask);
  CHECK(masked == index.steps(0, mask));
  CHECK(masked != index.steps(0));
  CHECK(masked->counts().total() == 0);
  CHECK(index.steps().counts().total() == kNumSteps);
  const std::vector<int64_t> ids = {index.id({4, 1}, Unit::kStep),
                                    index.id({2, 0}, Unit::kEpisode)};
  CHECK(index.mark(*mask, ids, true) == 2);
  CHECK(masked->counts().total() == 3);
  CHECK(masked->contains({4, 1}));
  CHECK(masked->contains({2, 1}));
  add_episode(index, {19, 20});
  CHECK(masked->counts().total() == 5);
  // A page that is used anew is not kept out, and an id of what it held names nothing.
  for (int i = 0; i < 40; ++i) {
    add_episode(index, {1});
  }
  CHECK(index.mark(*mask, ids, false) == 0);
  CHECK(masked->counts().total() == index.state().num_steps - 2);  // of the open episode
  const std::vector<int64_t> wrong = {index.id({0, 0}, Unit::kStep), int64_t{1} << 50};
  expect_message<gear::base::InvalidArgument>([&] { index.mark(*mask, wrong, false); },
                                              "nothing was marked");
  CHECK(masked->counts().total() == index.state().num_steps - 2);
  SamplerOptions options = options_of(Policy::kUniform, Unit::kEpisode);
  options.mask = mask;
  expect_message<gear::base::InvalidArgument>([&] { std::make_unique<Sampler>(options, index); },
                                              "whole episodes");
}

TEST_CASE("a sequential epoch gives every step once, in an order of its own") {
  for (const bool shuffle : {true, false}) {
    for (const bool drop_last : {true, false}) {
      for (const uint64_t size : {5, 1}) {  // with a batch left over, and with none
        const auto made = make_index();
        Index& index = *made;
        SamplerOptions options = options_of(Policy::kSequential);
        options.shuffle = shuffle;
        options.drop_last = drop_last;
        const uint64_t wanted = drop_last ? kNumSteps / size * size : kNumSteps;
        CHECK(batches_per_epoch(options, index, size) == (wanted + size - 1) / size);
        const auto sampler = std::make_unique<Sampler>(options, index);
        std::vector<std::vector<int>> epochs(3);
        for (std::vector<int>& epoch : epochs) {
          for (Selection chosen; (chosen = select(*sampler, index, size)).size() > 0;) {
            const auto steps = steps_of(index, chosen);
            epoch.insert(epoch.end(), steps.begin(), steps.end());
          }
          CHECK(epoch.size() == wanted);
          CHECK(std::set<int>(epoch.begin(), epoch.end()).size() == wanted);
        }
        CHECK((epochs[0] != epochs[1]) == shuffle);
        CHECK((epochs[1] != epochs[2]) == shuffle);
        if (!shuffle) {
          CHECK(std::is_sorted(epochs[0].begin(), epochs[0].end()));
        }
      }
    }
  }
}

TEST_CASE("a sequential epoch over a buffer that changes is given up") {
  for (const bool shuffle : {true, false}) {
    const auto made = make_index();
    Index& index = *made;
    SamplerOptions options = options_of(Policy::kSequential);
    options.shuffle = shuffle;
    const auto sampler = std::make_unique<Sampler>(options, index);
    select(*sampler, index, 5);
    add_episode(index, {19, 20});
    expect_message<gear::base::InvalidArgument>([&] { select(*sampler, index, 5); }, "19 items",
                                                "21 offered", "the next epoch begins");
    CHECK(select(*sampler, index, 100).size() == kNumSteps + 2);
    CHECK(select(*sampler, index, 100).size() == 0);
    CHECK(sampler->law().position().numbers.at(1) == 2);
  }
}

TEST_CASE("a position beyond its epoch ends the epoch") {
  const auto made = make_index();
  Index& index = *made;
  const auto sampler = std::make_unique<Sampler>(options_of(Policy::kSequential), index);
  SamplerPosition position;
  position.numbers = {kNumSteps + 1, 0, kNumSteps};
  try {
    sampler->law().restore(position);
    CHECK(select(*sampler, index, 5).size() == 0);
  } catch (const gear::base::InvalidArgument&) {  // or it is refused
  }
}

TEST_CASE("samplers that cannot be are refused") {
  const auto made = make_index();
  Index& index = *made;
  for (const double wrong : {-0.1, std::nan(""), HUGE_VAL}) {
    SamplerOptions options = options_of(Policy::kWeighted);
    options.alpha = wrong;
    expect_message<gear::base::InvalidArgument>([&] { std::make_unique<Sampler>(options, index); },
                                                "[sampler] alpha");
    options.alpha = 0.6;
    options.beta = wrong;
    CHECK_THROWS_AS(std::make_unique<Sampler>(options, index), gear::base::InvalidArgument);
  }
  const auto made_spending = make_index(1);
  Index& spending = *made_spending;
  expect_message<gear::base::InvalidArgument>(
      [&] { std::make_unique<Sampler>(options_of(Policy::kSequential), spending); },
      "max_times_sampled");
}

TEST_CASE("a queue and a stack look at what they give, not at what was spent before") {
  constexpr uint64_t kPages = 300;
  constexpr uint64_t kPageSteps = 32;
  constexpr uint64_t kBatch = 64;
  for (const Policy policy : {Policy::kFifo, Policy::kLifo}) {
    CAPTURE(static_cast<int>(policy));
    Index index({kPages, kPageSteps, 0, Evict::kFifo, 1});
    const uint32_t e = add_episode(index, std::vector<float>(kPages * kPageSteps, 1.0F), false);
    const auto sampler = std::make_unique<Sampler>(options_of(policy), index);
    const bool from_oldest = policy == Policy::kFifo;
    const auto from = from_oldest ? Walk::From::kOldest : Walk::From::kNewest;
    for (uint64_t given = 0; given < kPages * kPageSteps; given += kBatch) {
      const Drawable& steps = index.steps();
      Walk walk(index, &steps, from);
      const uint32_t begins = from_oldest ? steps.first(e) : steps.last(e);
      Anchor anchor{};
      for (uint64_t i = 0; i < kBatch; ++i) {
        REQUIRE(walk.next(anchor));
        REQUIRE((i > 0 || anchor.page == begins));
      }
      const Selection chosen = select(*sampler, index, kBatch);
      REQUIRE(chosen.size() == kBatch);
      REQUIRE(chosen.anchors.back().page == anchor.page);
      REQUIRE(chosen.anchors.back().row == anchor.row);
      index.deliver(index.take_draws());
    }
    REQUIRE(select(*sampler, index, 1).size() == 0);
    index.end_episode(e, EpisodeState::kTerminated, -1.0, 0);
    CHECK(index.state().num_episodes == 0);
  }
}

TEST_CASE("a queue that is filled while it is emptied gives every step once, in order") {
  Index index({64, 4, 0, Evict::kFifo, 1});
  const auto sampler = std::make_unique<Sampler>(options_of(Policy::kFifo), index);
  uint32_t e = kNone;
  float next = 0;
  float expected = 0;
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < round % 7; ++i, ++next) {
      if (!has_room(index, e)) {
        index.next_page(e);
        index.attach_page(e);
      }
      index.append(e, {&next, 1});
    }
    if (round % 11 == 0 && e != kNone) {
      index.end_episode(e, EpisodeState::kTruncated, -1.0, 0);
      e = kNone;
    }
    const Selection chosen = select(*sampler, index, 5);
    for (const Anchor& anchor : chosen.anchors) {
      REQUIRE(index.priority(anchor) == expected);
      ++expected;
    }
    index.deliver(index.take_draws());
  }
  CHECK(expected > 1000);
}

TEST_CASE("an episode that was spent and evicted leaves the next one in its slot alone") {
  Index index({4, 1, 0, Evict::kFifo, 1});
  const uint32_t spent = add_episode(index, {1, 1});
  const auto sampler = std::make_unique<Sampler>(options_of(Policy::kFifo), index);
  REQUIRE(select(*sampler, index, 4).size() == 2);  // in flight
  add_episode(index, {2, 2});
  add_episode(index, {4, 4});  // evicts it
  const uint32_t again = add_episode(index, {3}, false);
  REQUIRE(again == spent);
  index.deliver(index.take_draws());
  CHECK(index.episode(again).end == 1);
  CHECK(index.state().num_episodes == 3);
  CHECK(select(*sampler, index, 9).size() == 4);
}

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "../group_content.h"
#include "select/law.h"
#include "select/space.h"

// The seam of mixtures: a law of two parts, each a space and a chance of its own, whose items come
// into one selection. Of an item that both may draw, the probability is that of the union.

using namespace gear;
using namespace gear::select;

namespace {

constexpr uint64_t kPageSteps = 4;

struct Part {
  double share;
  Law law;
  Space space;
};

struct TwoParts {
  TwoParts(store::Index& index, double share, const SamplerOptions& first,
           const SamplerOptions& second)
      : parts{{{share, Law(first), Space(first, index)},
               {1 - share, Law(second), Space(second, index)}}} {}

  // So many items of each; what is left of a fraction goes to the first.
  void select(const store::Index& index, uint64_t count, Selection& out) {
    const auto second = static_cast<uint64_t>(static_cast<double>(count) * parts[1].share);
    for (size_t p = 0; p < parts.size(); ++p) {
      Part& part = parts[p];
      const uint64_t total = part.space.total(index);
      const uint64_t items = part.law.chance()->next(total, part.space.version(index),
                                                     p == 0 ? count - second : second);
      std::vector<uint64_t> targets(items);
      part.law.chance()->targets(0, targets);
      part.space.add(index, targets, total, out);
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out.probabilities[i] = probability(index, out.anchors[i]);
    }
  }

  float probability(const store::Index& index, store::Anchor anchor) const {
    double sum = 0;
    for (const Part& part : parts) {
      sum += part.share *
             static_cast<double>(part.space.probability(index, anchor, part.space.total(index)));
    }
    return static_cast<float>(sum);
  }

  std::array<Part, 2> parts;
};

std::unique_ptr<store::Index> filled() {
  auto index = std::make_unique<store::Index>(store::IndexOptions{20, kPageSteps});
  for (int e = 0; e < 5; ++e) {
    uint32_t episode = store::kNone;
    for (uint64_t row = 0; row < 3 * kPageSteps; row += kPageSteps) {
      index->next_page(episode);
      index->attach_page(episode);
      std::vector<float> priorities(kPageSteps);
      for (size_t i = 0; i < priorities.size(); ++i) {
        priorities[i] = 1.0F + static_cast<float>((row + i + static_cast<uint64_t>(e)) % 7);
      }
      index->append(episode, priorities);
    }
    index->end_episode(episode, store::EpisodeState::kTerminated, -1.0, 0);
  }
  return index;
}

}  // namespace

TEST_CASE("a law of two parts draws as many of each, with the probabilities of their union") {
  const auto index = filled();
  const auto mask = index->make_mask();
  std::vector<int64_t> kept_out;
  for (uint32_t page = 0; page < 12; ++page) {
    for (uint32_t row = 0; row < kPageSteps; ++row) {
      kept_out.push_back(index->id({page, row}, store::Unit::kStep));
    }
  }
  index->mark(*mask, kept_out, false);  // of the first part: three pages are left
  SamplerOptions newest;
  newest.mask = mask;
  newest.seed = 4;
  SamplerOptions weighted;
  weighted.policy = Policy::kWeighted;
  weighted.alpha = 0.7;
  weighted.seed = 5;
  TwoParts law(*index, 0.25, newest, weighted);

  double sum = 0;
  for (uint32_t page = 0; page < 15; ++page) {
    for (uint32_t row = 0; row < kPageSteps; ++row) {
      sum += static_cast<double>(law.probability(*index, {page, row}));
    }
  }
  CHECK(sum == doctest::Approx(1.0));

  std::map<std::pair<uint32_t, uint32_t>, uint64_t> counts;
  constexpr uint64_t kBatches = 400;
  constexpr uint64_t kBatch = 64;
  for (uint64_t batch = 0; batch < kBatches; ++batch) {
    Selection out;
    law.select(*index, kBatch, out);
    REQUIRE(out.size() == kBatch);
    for (size_t i = 0; i < kBatch / 4; ++i) {
      REQUIRE(out.anchors[i].page >= 12);
    }
    for (const store::Anchor& anchor : out.anchors) {
      ++counts[{anchor.page, anchor.row}];
    }
  }
  // Each part's counts are fixed, so that chi-square is a little smaller than of free draws.
  double chi_square = 0;
  for (uint32_t page = 0; page < 15; ++page) {
    for (uint32_t row = 0; row < kPageSteps; ++row) {
      const double expected =
          static_cast<double>(law.probability(*index, {page, row})) * kBatches * kBatch;
      const double off = static_cast<double>(counts[{page, row}]) - expected;
      chi_square += off * off / expected;
    }
  }
  CHECK(chi_square < 99.6);  // of 59 degrees of freedom: one in a thousand

  // A part's position is its own, and both continue.
  const SamplerPosition first = law.parts[0].law.position();
  const SamplerPosition second = law.parts[1].law.position();
  CHECK(first.numbers == Position{kBatches * kBatch / 4});
  Selection wanted;
  law.select(*index, kBatch, wanted);
  law.parts[0].law.restore(first);
  law.parts[1].law.restore(second);
  Selection again;
  law.select(*index, kBatch, again);
  CHECK(std::ranges::equal(wanted.anchors, again.anchors, [](auto one, auto other) {
    return one.page == other.page && one.row == other.row;
  }));
}

TEST_CASE("an item has the probability with which its law draws it, and 0 where it is not drawn") {
  const auto index = filled();
  for (const Policy policy : {Policy::kUniform, Policy::kWeighted}) {
    for (const store::Unit unit : {store::Unit::kStep, store::Unit::kEpisode}) {
      SamplerOptions options;
      options.policy = policy;
      options.unit = unit;
      const Space space(options, *index);
      const uint64_t total = space.total(*index);
      std::vector<uint64_t> targets(std::min<uint64_t>(total, 4000));
      for (uint64_t i = 0; i < targets.size(); ++i) {
        targets[i] = i * (total / targets.size());
      }
      Selection found;
      space.add(*index, targets, total, found);
      for (size_t i = 0; i < found.size(); ++i) {
        REQUIRE(space.probability(*index, found.anchors[i], total) == found.probabilities[i]);
      }
      CHECK(space.probability(*index, {19, 0}, total) == 0.0F);  // an empty page
    }
  }
}

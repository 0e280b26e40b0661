// Random contents, cut at random places into ranks: all of them together draw what one rank draws
// that holds everything.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "group_content.h"
#include "select/sampler.h"
#include "tries.h"

using namespace gear::select;
using namespace gear::store;
using namespace gear::testing;

namespace {

// Whole numbers that follow from a seed.
class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t range) { return random_below(seed_, made_++, range); }

 private:
  uint64_t seed_;
  uint64_t made_ = 0;
};

// Of all steps alike; small ones; any, with zeros; one huge one among zeros.
float priority(uint64_t kind, bool huge, Random& random) {
  switch (kind) {
    case 0:
      return 1.0F;
    case 1:
      return static_cast<float>(1 + random.below(9)) * 1e-6F;
    case 2:
      return static_cast<float>(random.below(100)) / 8;
    default:
      return huge ? 1e30F : 0.0F;
  }
}

// Episodes in the order of the whole, some of them open.
GroupContent::Share made_up(Random& random) {
  GroupContent::Share episodes(1 + random.below(80));
  const uint64_t kind = random.below(4);
  const uint64_t huge = random.below(episodes.size());
  for (size_t e = 0; e < episodes.size(); ++e) {
    episodes[e].ends = e == 0 || random.below(6) != 0;
    const uint64_t steps = 1 + random.below(12);
    for (uint64_t i = 0; i < steps; ++i) {
      episodes[e].priorities.push_back(priority(kind, e == huge && i == 0, random));
    }
  }
  return episodes;
}

// Runs of the episodes, one a rank; some ranks have none.
GroupContent cut(const GroupContent::Share& episodes, uint32_t size, Random& random) {
  std::vector<uint64_t> ends(size, episodes.size());
  for (uint32_t rank = 0; rank + 1 < size; ++rank) {
    ends[rank] = random.below(episodes.size() + 1);
  }
  std::ranges::sort(ends);
  std::vector<GroupContent::Share> shares(size);
  uint64_t begin = 0;
  for (uint32_t rank = 0; rank < size; ++rank) {
    for (; begin < ends[rank]; ++begin) {
      shares[rank].push_back(episodes[begin]);
      shares[rank].back().rank = rank;
    }
  }
  return GroupContent(std::move(shares));
}

SamplerOptions law(Policy policy, Random& random) {
  SamplerOptions options;
  options.policy = policy;
  options.unit = random.below(3) == 0 ? Unit::kEpisode : Unit::kStep;
  options.seed = random.below(1 << 20);
  options.alpha = static_cast<double>(random.below(11)) / 10;
  return options;
}

void require_equal(GroupContent& content, const SamplerOptions& options,
                   std::initializer_list<uint64_t> batches) {
  GroupOfSamplers group(content, options);
  const auto single = std::make_unique<Sampler>(options, *content.whole);
  for (const uint64_t count : batches) {
    Selection chosen;
    single->select(*content.whole, count, chosen);
    const GroupOfSamplers::Batch batch = group.select(count);
    REQUIRE(batch.steps.size() == chosen.size());
    bool equal = true;
    for (size_t i = 0; i < chosen.size(); ++i) {
      equal = equal && batch.steps[i] == content.step_of_whole(chosen.anchors[i]);
    }
    REQUIRE(equal);
    REQUIRE(batch.probabilities == chosen.probabilities);
  }
}

}  // namespace

TEST_CASE("the law: any content, on any number of ranks, is drawn as on one") {
  for (uint64_t seed = 0; seed < tries(24); ++seed) {
    Random random(seed);
    const GroupContent::Share episodes = made_up(random);
    const Policy policy = seed % 3 == 0   ? Policy::kUniform
                          : seed % 3 == 1 ? Policy::kWeighted
                                          : Policy::kSequential;
    const SamplerOptions options = law(policy, random);
    for (const uint32_t size : {1U, 2U, 3U, 4U, 8U, 64U}) {
      CAPTURE(seed);
      CAPTURE(size);
      GroupContent content = cut(episodes, size, random);
      require_equal(content, options, {1, 1, 1 + random.below(700), 1});
    }
  }
}

TEST_CASE("the law: a batch of a million, and one of one behind it") {
  Random random(90);
  const GroupContent::Share episodes = made_up(random);
  GroupContent content = cut(episodes, 4, random);
  require_equal(content, law(Policy::kWeighted, random), {tries(1'000'000), 1});
}

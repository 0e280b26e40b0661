#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/numbers/philox.h"
#include "store/drawable/weight_trees.h"

using namespace gear::store;

namespace {

uint64_t random_below(uint64_t n, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(6, 0, n), range);
}

uint64_t slow_least(const SumTree& sums) {
  uint64_t least = 0;
  for (uint64_t leaf = 0; leaf < sums.num_leaves(); ++leaf) {
    const uint64_t weight = sums[leaf];
    least = weight > 0 && (least == 0 || weight < least) ? weight : least;
  }
  return least;
}

}  // namespace

TEST_CASE("the least weight above 0 of a tree, however its leaves are set") {
  for (const uint64_t leaves : {1U, 2U, 16U, 17U, 255U, 257U, 5000U}) {
    CAPTURE(leaves);
    WeightTrees trees;
    const auto tree = trees.make(1.0, leaves, 1.0F);
    tree->set(0, 7);  // before somebody asks
    tree->least.emplace(tree->sums);
    CHECK(tree->least->least() == 7);
    tree->set(0, 0);
    CHECK(tree->least->least() == 0);
    uint64_t n = 0;
    for (int turn = 0; turn < 200; ++turn) {
      const uint64_t first = random_below(++n, leaves);
      const uint64_t count = 1 + random_below(++n, std::min<uint64_t>(leaves - first, 40));
      std::vector<uint64_t> weights(count);
      std::vector<uint64_t> places(count);
      for (uint64_t i = 0; i < count; ++i) {
        const uint64_t large = uint64_t{1} << (10 + random_below(++n, 30));
        weights[i] = random_below(++n, 3) == 0 ? 0 : 1 + random_below(++n, large);
        places[i] = random_below(++n, leaves);  // some twice
      }
      if (turn % 3 == 0) {
        tree->set_run(first, weights);
      } else if (turn % 3 == 1) {
        tree->set_each(places, weights);
      } else {
        tree->set(first, weights[0]);
      }
      REQUIRE(tree->least->least() == slow_least(tree->sums));
    }
    const std::vector<uint64_t> none(leaves, 0);
    tree->set_run(0, none);
    CHECK(tree->least->least() == 0);
  }
}

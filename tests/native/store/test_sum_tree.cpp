#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/numbers/philox.h"
#include "store/drawable/sum_tree.h"

using gear::base::philox;
using gear::store::SumTree;

namespace {

constexpr uint64_t kSizes[] = {1, 15, 16, 17, 257, 4097};

// Weights with many zeros, ones and a few large ones.
uint64_t random_weight(uint64_t counter) {
  const uint64_t bits = philox(7, 0, counter).lo;
  switch (bits % 4) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return bits >> 54;
    default:
      return bits >> 24;
  }
}

std::vector<uint64_t> random_weights(uint64_t count, uint64_t counter) {
  std::vector<uint64_t> weights(count);
  for (uint64_t& weight : weights) {
    weight = random_weight(counter++);
  }
  return weights;
}

std::vector<SumTree::Hit> find(const SumTree& tree, const std::vector<uint64_t>& targets) {
  std::vector<SumTree::Hit> hits(targets.size(), {~uint64_t{0}, ~uint64_t{0}});
  tree.find(targets, hits);
  return hits;
}

// Compares the leaves, the total and every boundary of every leaf: the search reads each sum of
// each level on its way, so a wrong one shows.
void expect_equal(const SumTree& tree, const std::vector<uint64_t>& weights) {
  REQUIRE(tree.num_leaves() == weights.size());
  std::vector<uint64_t> targets;
  std::vector<SumTree::Hit> wanted;
  uint64_t begin = 0;
  for (uint64_t leaf = 0; leaf < weights.size(); ++leaf) {
    const uint64_t weight = weights[leaf];
    REQUIRE(tree[leaf] == weight);
    if (weight > 0) {
      for (const uint64_t remainder : {uint64_t{0}, weight / 2, weight - 1}) {
        targets.push_back(begin + remainder);
        wanted.push_back({leaf, remainder});
      }
    }
    begin += weight;
  }
  REQUIRE(tree.total() == begin);
  const std::vector<SumTree::Hit> hits = find(tree, targets);
  for (size_t i = 0; i < hits.size(); ++i) {
    CAPTURE(targets[i]);
    REQUIRE(hits[i].leaf == wanted[i].leaf);
    REQUIRE(hits[i].remainder == wanted[i].remainder);
  }
}

}  // namespace

TEST_CASE("an empty sum tree has total 0 and takes the bytes of its levels") {
  for (const uint64_t size : kSizes) {
    const SumTree tree(size);
    expect_equal(tree, std::vector<uint64_t>(size, 0));
    CHECK(tree.bytes() % (SumTree::kFanout * sizeof(uint64_t)) == 0);
    CHECK(tree.bytes() >= size * sizeof(uint64_t));
    CHECK(tree.bytes() <= (size * 17 / 16 + 100) * sizeof(uint64_t));
  }
}

TEST_CASE("sum tree: every boundary of every leaf is found, and no leaf of weight 0 is") {
  for (const uint64_t size : kSizes) {
    CAPTURE(size);
    SumTree tree(size);
    const std::vector<uint64_t> weights = random_weights(size, 1000 * size);
    for (uint64_t leaf = 0; leaf < size; ++leaf) {
      tree.set(leaf, weights[leaf]);
    }
    expect_equal(tree, weights);

    SumTree by_run(size);
    by_run.set_run(0, weights);
    expect_equal(by_run, weights);

    // One leaf alone, at every place.
    SumTree lone(size);
    for (uint64_t leaf = 0; leaf < size; ++leaf) {
      lone.set(leaf, 3);
      const auto hits = find(lone, {0, 1, 2});
      for (uint64_t i = 0; i < 3; ++i) {
        REQUIRE((hits[i].leaf == leaf && hits[i].remainder == i));
      }
      lone.set(leaf, 0);
    }
    CHECK(lone.total() == 0);
  }
}

TEST_CASE("sum tree: runs of every length at every place equal single updates") {
  constexpr uint64_t kSize = 50;
  for (uint64_t first = 0; first < kSize; ++first) {
    for (uint64_t length = 0; first + length <= kSize; ++length) {
      SumTree tree(kSize);
      std::vector<uint64_t> weights = random_weights(kSize, 1);
      tree.set_run(0, weights);
      const std::vector<uint64_t> run = random_weights(length, 100 * first + length);
      std::copy(run.begin(), run.end(), weights.begin() + static_cast<ptrdiff_t>(first));
      tree.set_run(first, run);
      expect_equal(tree, weights);
    }
  }
}

TEST_CASE("sum tree: sums stay exact through a million random updates") {
  constexpr uint64_t kSize = 4097;
  SumTree tree(kSize);
  std::vector<uint64_t> weights(kSize, 0);
  uint64_t counter = 0;
  uint64_t leaves_set = 0;
  for (uint64_t round = 0; leaves_set < 1000000; ++round) {
    const uint64_t first = philox(8, 0, round).hi % kSize;
    if (round % 2 == 0) {
      weights[first] = random_weight(counter++);
      tree.set(first, weights[first]);
      ++leaves_set;
    } else {
      const uint64_t length = std::min(philox(8, 0, round).lo % 100, kSize - first);
      for (uint64_t i = 0; i < length; ++i) {
        weights[first + i] = random_weight(counter++);
      }
      tree.set_run(first, {weights.data() + first, length});
      leaves_set += length;
    }
    if (round % 64 != 0) {
      continue;
    }
    REQUIRE(tree.total() == std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
  }
  expect_equal(tree, weights);
}

TEST_CASE("sum tree: totals up to 2^63 - 1 are exact") {
  SumTree tree(300);
  constexpr uint64_t kHalf = uint64_t{1} << 62;
  tree.set(0, kHalf);
  tree.set(299, kHalf - 1);
  CHECK(tree.total() == 2 * kHalf - 1);
  const auto hits = find(tree, {kHalf - 1, kHalf, 2 * kHalf - 2});
  CHECK((hits[0].leaf == 0 && hits[0].remainder == kHalf - 1));
  CHECK((hits[1].leaf == 299 && hits[1].remainder == 0));
  CHECK((hits[2].leaf == 299 && hits[2].remainder == kHalf - 2));
  tree.set(0, 0);
  tree.set(299, 0);
  CHECK(tree.total() == 0);
}

TEST_CASE("sum tree: leaves set together are as if set one by one, the last weight counting") {
  for (const uint64_t size : kSizes) {
    SumTree tree(size);
    std::vector<uint64_t> wanted(size, 0);
    for (uint64_t round = 0; round < 20; ++round) {
      std::vector<uint64_t> leaves(1 + round * 17);
      for (size_t i = 0; i < leaves.size(); ++i) {
        leaves[i] = philox(8, round, i).lo % std::min<uint64_t>(size, 300);  // many come again
      }
      const std::vector<uint64_t> weights = random_weights(leaves.size(), round * 1000);
      for (size_t i = 0; i < leaves.size(); ++i) {
        wanted[leaves[i]] = weights[i];
      }
      tree.set_each(leaves, weights);
    }
    expect_equal(tree, wanted);
  }
}

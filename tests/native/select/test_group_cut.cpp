// Which of the sorted keys of many ranks are the first ones of all, against sorting all of them.
#include <doctest/doctest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/numbers/philox.h"
#include "select/group/group_cut.h"
#include "tries.h"

using namespace gear::select;
using gear::testing::tries;

namespace {

using Keys = std::vector<std::vector<uint64_t>>;  // by rank

uint64_t below(uint64_t& seed, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(++seed, 3, 0), range);
}

// Which of the first `items` of all each rank's are, in the order of its keys.
std::vector<std::vector<uint32_t>> sorted(const Keys& keys, uint64_t items, bool reversed) {
  std::vector<std::tuple<uint64_t, size_t, size_t, size_t>> all;  // key, turn, place, rank
  for (size_t r = 0; r < keys.size(); ++r) {
    for (size_t i = 0; i < keys[r].size(); ++i) {
      all.emplace_back(keys[r][i], reversed ? keys.size() - 1 - r : r, i, r);
    }
  }
  std::sort(all.begin(), all.end());
  std::vector<std::vector<uint32_t>> own(keys.size());
  for (size_t n = 0; n < std::min<size_t>(items, all.size()); ++n) {
    own[std::get<3>(all[n])].push_back(static_cast<uint32_t>(n));
  }
  return own;
}

// The rounds that it took.
int check_cut(Keys keys, uint64_t items, bool reversed) {
  for (std::vector<uint64_t>& one : keys) {
    std::ranges::sort(one);
    one.resize(std::min<size_t>(one.size(), items));
  }
  const auto ranks = static_cast<uint32_t>(keys.size());
  std::vector<GroupCut> cuts;
  std::vector<uint64_t> numbers;
  for (uint32_t r = 0; r < ranks; ++r) {
    cuts.emplace_back(keys[r], r, ranks, reversed);
    const GroupCut::Window first = GroupCut::window_of(keys[r], 0, keys[r].size());
    numbers.insert(numbers.end(), first.begin(), first.end());
  }
  std::vector<uint64_t> counts;
  for (int round = 1;; ++round) {
    REQUIRE(round < 20);
    std::vector<uint64_t> next;
    bool done = false;
    for (GroupCut& cut : cuts) {
      std::ranges::copy(numbers, cut.numbers().begin());
      std::vector<uint64_t> found;
      const bool is_done = cut.narrow(items, found);
      if (&cut == cuts.data()) {
        done = is_done;
        counts = found;
      }
      REQUIRE(is_done == done);  // on all ranks alike
      if (done) {
        REQUIRE(found == counts);
      } else {
        next.insert(next.end(), cut.own().begin(), cut.own().end());
      }
    }
    if (!done) {
      numbers = next;
      continue;
    }
    const auto wanted = sorted(keys, items, reversed);
    std::vector<uint64_t> winners;
    for (uint32_t r = 0; r < ranks; ++r) {
      REQUIRE(counts[r] == wanted[r].size());
      winners.insert(winners.end(), keys[r].begin(),
                     keys[r].begin() + static_cast<int64_t>(counts[r]));
    }
    for (uint32_t r = 0; r < ranks; ++r) {
      std::vector<uint32_t> own;
      cuts[r].number(winners, counts, own);
      REQUIRE(own == wanted[r]);
    }
    return round;
  }
}

}  // namespace

TEST_CASE("the cut through the keys of all ranks is that of sorting them") {
  uint64_t seed = 0;
  for (uint64_t round = 0; round < tries(300); ++round) {
    Keys keys(1 + below(seed, 9));
    const uint64_t range = round % 3 == 0 ? 4 : round % 3 == 1 ? 300 : UINT64_MAX;  // equal ones
    for (std::vector<uint64_t>& one : keys) {
      const uint64_t most = uint64_t{1} << below(seed, 12);
      one.resize(below(seed, 4) == 0 ? 0 : below(seed, most));
      for (uint64_t& key : one) {
        key = below(seed, range);
      }
    }
    for (const bool reversed : {false, true}) {
      check_cut(keys, 1 + below(seed, 3000), reversed);
    }
  }
}

TEST_CASE("a cut is found in one round where a batch is small, and else in few") {
  uint64_t seed = 1;
  const auto random = [&](size_t ranks, size_t count) {
    Keys keys(ranks, std::vector<uint64_t>(count));
    for (auto& one : keys) {
      for (uint64_t& key : one) {
        key = below(seed, UINT64_MAX);
      }
    }
    return keys;
  };
  CHECK(check_cut(random(8, 1000), GroupCut::kSamples, false) == 1);
  CHECK(check_cut(random(8, 2048), 2048, false) <= 3);
  CHECK(check_cut(random(64, 16384), 16384, false) <= 4);
  // All on one rank, or all of one key.
  Keys one(8);
  one[3] = random(1, 4096)[0];
  CHECK(check_cut(one, 2048, false) <= 3);
  CHECK(check_cut(Keys(8, std::vector<uint64_t>(2048, 5)), 2048, true) <= 3);
}

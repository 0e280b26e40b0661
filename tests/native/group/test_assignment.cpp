#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "expect_message.h"
#include "group/assignment.h"
#include "tries.h"

using namespace gear::group;
using gear::testing::expect_message;
using gear::testing::tries;

namespace {

using Counts = std::vector<uint64_t>;
using Nodes = std::vector<uint32_t>;

// One draw of one rank's.
struct Drawn {
  uint32_t owner;
  uint64_t number;  // among the owner's

  friend bool operator==(const Drawn&, const Drawn&) = default;
};
using Batches = std::vector<std::vector<Drawn>>;  // by consumer

uint64_t below(uint64_t& seed, uint64_t range) {
  return gear::base::scale_to(gear::base::philox(++seed, 5, 0), range);
}

// The law as it is said, draw by draw.
Batches dealt_one_by_one(const Counts& counts, const Nodes& nodes) {
  const auto ranks = static_cast<uint32_t>(counts.size());
  const uint64_t items = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  Batches batches(ranks);
  std::vector<std::vector<Drawn>> surplus(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint64_t n = 0; n < counts[r]; ++n) {
      (n < share_of(items, ranks, r) ? batches[r] : surplus[r]).push_back({r, n});
    }
  }
  const auto take = [&](std::vector<Drawn>& from, const auto& may_take) {
    std::vector<Drawn> left;
    for (const Drawn& one : from) {
      uint32_t r = 0;
      while (r < ranks && !(may_take(r) && batches[r].size() < share_of(items, ranks, r))) {
        ++r;
      }
      if (r < ranks) {
        batches[r].push_back(one);
      } else {
        left.push_back(one);
      }
    }
    from = left;
  };
  for (uint32_t r = 0; r < ranks; ++r) {
    take(surplus[r], [&](uint32_t taker) { return nodes[taker] == nodes[r]; });
  }
  for (uint32_t r = 0; r < ranks; ++r) {
    take(surplus[r], [](uint32_t) { return true; });
    REQUIRE(surplus[r].empty());
  }
  return batches;
}

Batches dealt_by_runs(const Counts& counts, const Nodes& nodes) {
  const auto ranks = static_cast<uint32_t>(counts.size());
  const uint64_t items = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  constexpr Drawn kNobody{UINT32_MAX, 0};
  Batches batches(ranks);
  for (uint32_t r = 0; r < ranks; ++r) {
    batches[r].resize(share_of(items, ranks, r), kNobody);
  }
  Assignment assignment(nodes);
  std::vector<std::vector<uint8_t>> sources(ranks);
  for (uint32_t consumer = 0; consumer < ranks; ++consumer) {
    assignment.sources(counts, consumer, sources[consumer]);
  }
  for (uint32_t owner = 0; owner < ranks; ++owner) {
    std::vector<uint32_t> runs_to(ranks, 0);
    std::vector<uint64_t> next_place(ranks, 0);
    uint64_t given = 0;
    for (const AssignedRun& run : assignment.runs(counts, owner)) {
      REQUIRE(run.count > 0);
      REQUIRE(++runs_to[run.consumer] <= (run.consumer == owner ? 1 : 2));
      REQUIRE(run.first + run.count <= counts[owner]);
      REQUIRE(run.place >= next_place[run.consumer]);  // places of a parcel ascend
      next_place[run.consumer] = run.place + run.count;
      for (uint32_t i = 0; i < run.count; ++i) {
        REQUIRE(run.place + i < batches[run.consumer].size());
        Drawn& place = batches[run.consumer][run.place + i];
        REQUIRE(place == kNobody);
        place = {owner, run.first + i};
      }
      given += run.count;
    }
    REQUIRE(given == counts[owner]);
    for (uint32_t consumer = 0; consumer < ranks; ++consumer) {
      REQUIRE(sources[consumer][owner] == (runs_to[consumer] > 0 ? 1 : 0));
    }
  }
  return batches;
}

Nodes nodes_of(uint32_t ranks, uint32_t ranks_per_node) {
  Nodes nodes;
  for (uint32_t r = 0; r < ranks; ++r) {
    nodes.push_back(r / ranks_per_node);
  }
  return nodes;
}

}  // namespace

TEST_CASE("assignment: runs say what dealing out draw by draw does") {
  uint64_t seed = 0;
  for (uint64_t round = 0; round < tries(500); ++round) {
    const auto ranks = static_cast<uint32_t>(1 + below(seed, 12));
    Nodes nodes;
    for (uint32_t r = 0; r < ranks; ++r) {
      nodes.push_back(round % 2 == 0 ? r / static_cast<uint32_t>(1 + round % 5)
                                     : static_cast<uint32_t>(below(seed, 4)));
    }
    Counts counts(ranks, 0);
    const uint64_t most = round % 10 == 0 ? 1 : 1 + below(seed, 80);
    for (uint64_t& count : counts) {  // empty shards, and items that no ranks divide
      count = below(seed, 3) == 0 ? 0 : below(seed, most + 1);
    }
    if (round % 7 == 0) {
      counts[below(seed, ranks)] += 300;  // nearly all on one
    }
    CAPTURE(round);
    REQUIRE(dealt_by_runs(counts, nodes) == dealt_one_by_one(counts, nodes));
  }
}

TEST_CASE("assignment: batches of one item and of a million a rank") {
  for (const Counts& counts : {Counts{0, 0, 0, 0}, Counts{1, 0, 0, 0}, Counts{0, 0, 0, 4},
                               Counts{1, 1, 1, 1}, Counts{0, 2, 2, 0}}) {
    CHECK(dealt_by_runs(counts, {0, 0, 1, 1}) == dealt_one_by_one(counts, {0, 0, 1, 1}));
  }
  const uint64_t many = tries(1 << 20);
  CHECK(dealt_by_runs({3 * many - 5, 5, 0}, {0, 1, 1}) ==
        dealt_one_by_one({3 * many - 5, 5, 0}, {0, 1, 1}));
  // As many as draws have numbers.
  Assignment assignment({0, 1});
  const auto runs = assignment.runs(Counts{UINT32_MAX, 0}, 0);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0] == AssignedRun{0, 0, 0, 1U << 31});
  CHECK(runs[1] == AssignedRun{1, 1U << 31, 0, (1U << 31) - 1});
}

TEST_CASE("assignment: surplus meets lacks in the order of the ranks, in the node first") {
  // Shares of 2. Ranks 0 and 1 share a node: it lacks 2 of rank 0's surplus of 4; what is left goes
  // to rank 3, which its own node had one for.
  const Counts counts = {6, 0, 3, 0, 1};
  const Nodes nodes = {0, 0, 1, 1, 2};
  Assignment assignment(nodes);
  const auto of = [&](uint32_t owner) {
    const auto runs = assignment.runs(counts, owner);
    return std::vector<AssignedRun>(runs.begin(), runs.end());
  };
  CHECK(of(0) == std::vector<AssignedRun>{{0, 0, 0, 2}, {1, 2, 0, 2}, {3, 4, 1, 1}, {4, 5, 1, 1}});
  CHECK(of(1).empty());
  CHECK(of(2) == std::vector<AssignedRun>{{2, 0, 0, 2}, {3, 2, 0, 1}});
  CHECK(of(4) == std::vector<AssignedRun>{{4, 0, 0, 1}});
}

TEST_CASE("assignment: locality first sends the least that shares allow, within nodes first") {
  const Nodes nodes = {0, 1, 0, 1, 2, 2, 0, 1};
  for (uint64_t seed = 0; seed < 20000; seed += 100) {
    uint64_t next = seed;
    Counts counts(nodes.size());
    for (uint64_t& count : counts) {
      count = below(next, 70);
    }
    const uint64_t items = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    uint64_t surplus = 0;
    std::vector<uint64_t> node_drawn(3, 0);
    std::vector<uint64_t> node_share(3, 0);
    for (uint32_t r = 0; r < counts.size(); ++r) {
      const uint64_t share = share_of(items, static_cast<uint32_t>(counts.size()), r);
      surplus += counts[r] - std::min(counts[r], share);
      node_drawn[nodes[r]] += counts[r];
      node_share[nodes[r]] += share;
    }
    uint64_t remote_surplus = 0;
    for (size_t node = 0; node < 3; ++node) {
      remote_surplus += node_drawn[node] - std::min(node_drawn[node], node_share[node]);
    }
    uint64_t moved = 0;
    uint64_t remote = 0;
    Assignment assignment(nodes);
    for (uint32_t owner = 0; owner < counts.size(); ++owner) {
      for (const AssignedRun& run : assignment.runs(counts, owner)) {
        moved += run.consumer != owner ? run.count : 0;
        remote += nodes[run.consumer] != nodes[owner] ? run.count : 0;
      }
    }
    CAPTURE(seed);
    REQUIRE(moved == surplus);
    REQUIRE(remote == remote_surplus);
  }
}

TEST_CASE("assignment: with balanced shards, about the root of the batch leaves its node") {
  constexpr uint32_t kRanks = 64;
  constexpr uint64_t kBatch = 256;
  const Nodes nodes = nodes_of(kRanks, 8);
  Assignment assignment(nodes);
  uint64_t remote = 0;
  constexpr uint64_t kRounds = 20;
  uint64_t seed = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    Counts counts(kRanks, 0);
    for (uint64_t n = 0; n < kRanks * kBatch; ++n) {
      ++counts[below(seed, kRanks)];
    }
    for (uint32_t owner = 0; owner < kRanks; ++owner) {
      for (const AssignedRun& run : assignment.runs(counts, owner)) {
        remote += nodes[run.consumer] != nodes[owner] ? run.count : 0;
      }
    }
  }
  CHECK(70 * remote < kRounds * kRanks * kBatch);
  CHECK(remote > 0);
}

TEST_CASE("assignment: locality is first or off") {
  CHECK(kLocalities.parse("first") == Locality::kFirst);
  CHECK(kLocalities.parse("off") == Locality::kOff);
  expect_message<gear::base::InvalidArgument>([] { kLocalities.parse("near"); }, "'near'",
                                              "'first' and 'off' are allowed");
}

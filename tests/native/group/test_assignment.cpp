#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "expect_message.h"
#include "group/assignment.h"

using namespace gear::group;
using gear::testing::expect_message;

namespace {

using Owners = std::vector<uint16_t>;

// Draws that fall on ranks in proportion to `weights`.
Owners random_owners(uint64_t seed, uint64_t draws, const std::vector<uint64_t>& weights) {
  uint64_t sum = 0;
  for (const uint64_t weight : weights) {
    sum += weight;
  }
  Owners owners;
  for (uint64_t n = 0; n < draws; ++n) {
    uint64_t target = gear::base::scale_to(gear::base::philox(seed, 0, n), sum);
    uint16_t rank = 0;
    while (target >= weights[rank]) {
      target -= weights[rank++];
    }
    owners.push_back(rank);
  }
  return owners;
}

std::vector<uint64_t> count_of(const Owners& owners, size_t ranks) {
  std::vector<uint64_t> counts(ranks, 0);
  for (const uint16_t owner : owners) {
    ++counts[owner];
  }
  return counts;
}

// Every rank gets its share, in places 0, 1, ... in the order of the draws.
void expect_complete(const Assignment& assignment, uint64_t draws) {
  std::vector<uint32_t> next(assignment.num_ranks(), 0);
  for (uint64_t draw = 0; draw < draws; ++draw) {
    REQUIRE(assignment.consumer(draw) < assignment.num_ranks());
    REQUIRE(assignment.place(draw) == next[assignment.consumer(draw)]++);
  }
  uint64_t sum = 0;
  for (uint32_t rank = 0; rank < assignment.num_ranks(); ++rank) {
    REQUIRE(next[rank] == assignment.share(rank));
    REQUIRE(assignment.share(rank) - draws / assignment.num_ranks() <= 1);
    sum += assignment.share(rank);
  }
  REQUIRE(sum == draws);
}

}  // namespace

TEST_CASE("assignment: every rank receives its share, whatever fell on whom") {
  const std::vector<std::vector<uint64_t>> cases = {
      {1}, {1, 1}, {90, 0, 5, 5}, {0, 0, 1}, {1, 2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
  uint64_t seed = 0;
  for (const auto& weights : cases) {
    for (const uint32_t ranks_per_node : {1U, 2U, 3U, 100U}) {
      std::vector<uint32_t> nodes;
      for (uint32_t r = 0; r < weights.size(); ++r) {
        nodes.push_back(r / ranks_per_node);
      }
      Assignment first(nodes, Locality::kFirst);
      Assignment in_parts(nodes, Locality::kFirst, 1 + seed % 30);
      Assignment off(nodes, Locality::kOff);
      // Full batches, and what the end of an epoch leaves.
      for (const uint64_t draws :
           {64 * weights.size(), 64 * weights.size() - 1, size_t{1}, size_t{0}}) {
        const Owners owners = random_owners(++seed, draws, weights);
        first.assign(owners);
        expect_complete(first, draws);
        in_parts.assign(owners);
        for (uint64_t draw = 0; draw < draws; ++draw) {
          REQUIRE(in_parts.consumer(draw) == first.consumer(draw));
          REQUIRE(in_parts.place(draw) == first.place(draw));
        }
        off.assign(owners);
        expect_complete(off, draws);
        for (uint64_t draw = 1; draw < draws; ++draw) {
          REQUIRE(off.consumer(draw) >= off.consumer(draw - 1));
        }
      }
    }
  }
}

TEST_CASE("assignment: locality first sends the least that shares allow, within nodes first") {
  const std::vector<uint64_t> weights = {5, 1, 1, 1, 0, 4, 2, 2};
  const std::vector<uint32_t> nodes = {0, 1, 0, 1, 2, 2, 0, 1};
  Assignment assignment(nodes, Locality::kFirst);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const uint64_t draws = 8 * 32 - seed % 8;
    const Owners owners = random_owners(seed, draws, weights);
    assignment.assign(owners);
    const std::vector<uint64_t> drawn = count_of(owners, weights.size());
    std::vector<uint64_t> node_drawn(3, 0);
    std::vector<uint64_t> node_share(3, 0);
    uint64_t surplus = 0;
    for (uint32_t rank = 0; rank < weights.size(); ++rank) {
      surplus += drawn[rank] - std::min(drawn[rank], assignment.share(rank));
      node_drawn[nodes[rank]] += drawn[rank];
      node_share[nodes[rank]] += assignment.share(rank);
    }
    uint64_t remote_surplus = 0;
    for (size_t node = 0; node < 3; ++node) {
      remote_surplus += node_drawn[node] - std::min(node_drawn[node], node_share[node]);
    }
    uint64_t moved = 0;
    uint64_t remote = 0;
    for (uint64_t draw = 0; draw < draws; ++draw) {
      const uint16_t consumer = assignment.consumer(draw);
      moved += consumer != owners[draw];
      remote += nodes[consumer] != nodes[owners[draw]];
    }
    CAPTURE(seed);
    REQUIRE(moved == surplus);
    REQUIRE(remote == remote_surplus);
  }
}

TEST_CASE("assignment: surplus goes to the ranks that lack some, in the order of their numbers") {
  Assignment assignment({0, 0, 1, 1}, Locality::kFirst);
  const Owners owners = {0, 0, 0, 0, 0, 2, 0, 2};  // shares of 2
  assignment.assign(owners);
  Owners consumers;
  for (uint64_t draw = 0; draw < owners.size(); ++draw) {
    consumers.push_back(assignment.consumer(draw));
  }
  CHECK(consumers == Owners{0, 0, 1, 1, 3, 2, 3, 2});
  CHECK(assignment.place(4) == 0);
  CHECK(assignment.place(6) == 1);
}

TEST_CASE("assignment: with balanced shards, about the root of the batch is moved") {
  constexpr uint64_t kRanks = 64;
  constexpr uint64_t kBatch = 256;
  std::vector<uint32_t> nodes;
  for (uint32_t r = 0; r < kRanks; ++r) {
    nodes.push_back(r / 8);
  }
  uint64_t remote[2] = {0, 0};
  for (const Locality locality : {Locality::kFirst, Locality::kOff}) {
    Assignment assignment(nodes, locality);
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const Owners owners = random_owners(seed, kRanks * kBatch, std::vector<uint64_t>(kRanks, 1));
      assignment.assign(owners);
      for (uint64_t draw = 0; draw < owners.size(); ++draw) {
        remote[locality == Locality::kOff] +=
            nodes[assignment.consumer(draw)] != nodes[owners[draw]];
      }
    }
  }
  CHECK(remote[1] > 80 * remote[0]);
}

TEST_CASE("assignment: locality is first or off") {
  CHECK(parse_locality("first") == Locality::kFirst);
  CHECK(parse_locality("off") == Locality::kOff);
  expect_message<gear::base::InvalidArgument>([] { parse_locality("near"); }, "'near'",
                                              "'first' or 'off'");
}

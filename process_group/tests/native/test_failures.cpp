#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "schedule/collectives.h"
#include "stepped_ranks.h"

// What ranks are told when one is late, missing, or in another call: by a clock that the test
// moves.

using namespace gear::process_group;
using gear::process_group::testing::kTimeoutS;
using gear::process_group::testing::SteppedRanks;

// What a rank has said to others when its group fails stays for ever: MPI may read it.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:gear::process_group::Comparison::Comparison\n";
}

namespace {

constexpr int kTurnsOfTimeout = static_cast<int>(kTimeoutS * 1000) / 3;

Schedule sum(SteppedRanks& ranks, int rank, std::vector<int32_t>& values) {
  return all_reduce(ranks.place(rank), {Element::kI32}, reinterpret_cast<std::byte*>(values.data()),
                    values.size());
}

constexpr Signature kSum{.kind = Kind::kAllReduce};

}  // namespace

TEST_CASE("a rank that is late is waited for") {
  SteppedRanks ranks(3);
  std::vector<std::vector<int32_t>> values(3, std::vector<int32_t>(2, 1));
  std::vector<std::shared_ptr<Call>> calls;
  for (const int rank : {0, 1}) {
    calls.push_back(ranks.begin(rank, kSum, sum(ranks, rank, values[static_cast<size_t>(rank)])));
  }
  ranks.step(kTurnsOfTimeout - 100);
  CHECK(!calls[0]->done);
  CHECK(!calls[1]->done);
  calls.push_back(ranks.begin(2, kSum, sum(ranks, 2, values[2])));
  REQUIRE(ranks.finish(calls));
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(calls[static_cast<size_t>(rank)]->failure == "");
    CHECK(values[static_cast<size_t>(rank)] == std::vector<int32_t>(2, 3));
  }
}

TEST_CASE("what a rank sends that comes while the roll is called is waited for") {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SteppedRanks ranks(3, 40, seed);
    std::vector<std::vector<int32_t>> values(3, std::vector<int32_t>(2, 1));
    std::vector<std::shared_ptr<Call>> calls;
    for (const int rank : {0, 1}) {
      calls.push_back(ranks.begin(rank, kSum, sum(ranks, rank, values[static_cast<size_t>(rank)])));
    }
    ranks.step(kTurnsOfTimeout + 20);
    calls.push_back(ranks.begin(2, kSum, sum(ranks, 2, values[2])));
    REQUIRE(ranks.finish(calls));
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(calls[static_cast<size_t>(rank)]->failure == "");
      CHECK(values[static_cast<size_t>(rank)] == std::vector<int32_t>(2, 3));
    }
  }
}

TEST_CASE("a rank that does not come in time is named on all others, and told when it comes") {
  for (const size_t count : {1U, 10'000U}) {
    SteppedRanks ranks(5, 4);
    std::vector<std::vector<int32_t>> values(5, std::vector<int32_t>(count, 1));
    std::vector<std::shared_ptr<Call>> calls;
    for (const int rank : {0, 1, 2, 4}) {
      calls.push_back(ranks.begin(rank, kSum, sum(ranks, rank, values[static_cast<size_t>(rank)])));
    }
    ranks.step(kTurnsOfTimeout - 1);
    CHECK(!calls.front()->done);
    REQUIRE(ranks.finish(calls));
    const std::string words =
        "[mpi] rank 3 did not come to all_reduce (call 0 of the group) within 10 s: look at the "
        "output of that rank, or give init_process_group a longer timeout";
    for (const auto& call : calls) {
      CHECK(call->failure == words);
    }
    for (const int rank : {0, 1, 2, 4}) {
      CHECK(ranks.desks[static_cast<size_t>(rank)]->is_abandoned());
    }
    const auto late = ranks.begin(3, kSum, sum(ranks, 3, values[3]));
    REQUIRE(ranks.finish({late}));
    CHECK(late->failure == words);
    // A group that has failed stays so.
    CHECK_THROWS_WITH_AS(ranks.begin(0, kSum, {}), words.c_str(), gear::base::TransportError);
  }
}

TEST_CASE("ranks of a group have the names that its launcher gave them") {
  SteppedRanks ranks(2);
  const std::vector<int> world{5, 7};
  auto desk = std::make_unique<gear::process_group::testing::Post::Desk>(
      *std::make_unique<gear::process_group::testing::Post>(2), 0);
  Ring ring("group", {0, 2}, world, std::move(desk));
  CHECK(ring.group.shown(0) == "0 (5 of the world)");
  CHECK(ring.group.shown(1) == "1 (7 of the world)");
}

TEST_CASE("ranks that call other operations hear of both") {
  SteppedRanks ranks(4, 3);
  std::vector<std::vector<int32_t>> values(4, std::vector<int32_t>(8, 1));
  std::vector<std::shared_ptr<Call>> calls;
  for (int rank = 0; rank < 4; ++rank) {
    auto& own = values[static_cast<size_t>(rank)];
    const Block block{reinterpret_cast<std::byte*>(own.data()), own.size() * sizeof own[0]};
    calls.push_back(rank == 2 ? ranks.begin(rank, {.root = 1, .kind = Kind::kBroadcast},
                                            broadcast(ranks.place(rank), block, 1))
                              : ranks.begin(rank, kSum, sum(ranks, rank, own)));
  }
  REQUIRE(ranks.finish(calls));
  CHECK(ranks.clock.now() < Time{std::chrono::hours(1)} + std::chrono::seconds(5));  // no time-out
  for (const auto& call : calls) {
    CAPTURE(call->failure);
    CHECK(call->failure.find("broadcast from rank 1") != std::string::npos);
    CHECK(call->failure.find("all_reduce") != std::string::npos);
    CHECK(call->failure.find("rank 2") != std::string::npos);
    CHECK(call->failure.find("(call 0 of the group)") != std::string::npos);
  }
}

TEST_CASE("ranks that give other numbers of elements hear of both, and nothing is written beyond") {
  SteppedRanks ranks(2, 3);
  std::vector<int32_t> few(3, 1);
  std::vector<int32_t> many(9000, 1);
  Signature of_few = kSum;
  of_few.dtype = short_name<sizeof of_few.dtype>("Int");
  Signature of_many = of_few;
  of_few.count = 3;
  of_many.count = 9000;
  const std::vector<std::shared_ptr<Call>> calls{ranks.begin(0, of_few, sum(ranks, 0, few)),
                                                 ranks.begin(1, of_many, sum(ranks, 1, many))};
  REQUIRE(ranks.finish(calls));
  for (const auto& call : calls) {
    CHECK(call->failure.find("all_reduce of 3 ") != std::string::npos);
    CHECK(call->failure.find("all_reduce of 9000 ") != std::string::npos);
  }
}

TEST_CASE("calls of which one rank is many ahead are all carried out") {
  SteppedRanks ranks(2);
  std::vector<std::vector<int32_t>> of_first(50, std::vector<int32_t>(1, 1));
  auto of_second = of_first;
  std::vector<std::shared_ptr<Call>> calls;
  for (auto& values : of_first) {
    calls.push_back(ranks.begin(0, kSum, sum(ranks, 0, values)));
  }
  ranks.step(20);
  for (auto& values : of_second) {
    calls.push_back(ranks.begin(1, kSum, sum(ranks, 1, values)));
    ranks.step(1);
  }
  REQUIRE(ranks.finish(calls));
  CHECK(of_first == std::vector<std::vector<int32_t>>(50, {2}));
  CHECK(of_second == of_first);
}

TEST_CASE("users' ranks may be more than those that messages reach") {
  // Two that are there, of five: they compare what they call with each other, and wait for nobody
  // else.
  SteppedRanks two(2);
  gear::process_group::testing::Post post(2);
  Engine engine(two.clock);
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<std::shared_ptr<Call>> calls;
  for (const int rank : {0, 1}) {
    rings.push_back(std::make_shared<Ring>(
        "five", Place{rank, 5}, std::vector<int>{0, 1, 2, 3, 4},
        std::make_unique<gear::process_group::testing::Post::Desk>(post, rank)));
    CHECK(rings.back()->place.size == 5);
    engine.submit(
        [&] {
          calls.push_back(std::make_shared<Collective>(
              rings.back(), Signature{.kind = Kind::kBarrier}, Schedule{}, 64, kTimeoutS));
          return calls.back();
        },
        true);
  }
  for (int turn = 0; turn < 20 && !(calls[0]->done && calls[1]->done); ++turn) {
    engine.drive();
  }
  for (const auto& call : calls) {
    CHECK(call->done);
    CHECK(call->failure == "");
  }
}

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "schedule/collectives.h"
#include "stepped_ranks.h"

// What one call owes the others of its engine: that it gives back the lock, and its requests.

using namespace gear::process_group;
using gear::process_group::testing::kTimeoutS;
using gear::process_group::testing::ManualClock;
using gear::process_group::testing::Post;
using gear::process_group::testing::SteppedRanks;

namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kPiece = 1 << 20;

// Of call 0 of the group.
Wire::Address call_of(int peer, Kind kind) {
  return {Wire::Line::kCalls, peer, Group::tag_of(0, kind)};
}

// A GPU that takes some pieces, and then is lost.
class LostGpu final : public Staging {
 public:
  explicit LostGpu(int pieces) : pieces_(pieces) {}

  bool has_come(const std::byte* /*bytes*/, uint64_t /*length*/) override { return true; }
  bool have_all_come() override { return true; }
  void leave(const std::byte* /*bytes*/, uint64_t /*length*/) override {
    if (pieces_-- == 0) {
      throw gear::base::TransportError("[test] the GPU is lost");
    }
  }

 private:
  int pieces_;
};

// A call that moves at every turn, which takes a moment; it ends after `kMostTurns` at the latest.
class Busy final : public Call {
 public:
  static constexpr int kMostTurns = 50'000;

  explicit Busy(std::shared_ptr<Ring> ring) : Call(std::move(ring), Kind::kAllReduce, kTimeoutS) {}

  Step advance() override {
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (std::chrono::steady_clock::now() < until) {
    }
    return ++turns >= kMostTurns || is_over ? Step::kEnded : Step::kMoved;
  }
  std::optional<std::string> late(Time /*now*/) override { return std::nullopt; }
  void cancel() noexcept override {}

  std::atomic<int> turns{0};
  std::atomic<bool> is_over{false};
};

}  // namespace

TEST_CASE("a reduction whose pieces are all there lets other calls go on between them") {
  constexpr uint64_t kPieces = 16;
  SteppedRanks ranks(2);
  const Bytes sent(kPiece);
  for (uint64_t i = 0; i < kPieces; ++i) {
    ranks.desks[1]->send(call_of(0, Kind::kReduce), sent.data(), sent.size());
  }
  Bytes sum(kPieces * kPiece);
  bool is_reduced = false;
  Schedule schedule;
  schedule.rounds.push_back(
      {{{1, true, sum.data(), sum.size(), true}}, [&] { is_reduced = true; }});
  const auto large = ranks.begin(0, {.kind = Kind::kReduce}, std::move(schedule), kPiece);
  CHECK(!is_reduced);
  const auto small = ranks.begin(0, {.kind = Kind::kBarrier}, {});
  const auto other = ranks.begin(1, {.kind = Kind::kReduce}, {});
  const auto other_small = ranks.begin(1, {.kind = Kind::kBarrier}, {});
  ranks.step(2);
  CHECK(small->done);
  CHECK(!is_reduced);
  REQUIRE(ranks.finish({large, other, other_small}));
  CHECK(is_reduced);
  CHECK(large->failure == "");
}

TEST_CASE("calls begin between the turns of one that moves without end") {
  constexpr int kCalls = 10;
  const ManualClock clock;
  Engine engine(clock);
  Post post(1);
  const auto ring = std::make_shared<Ring>("one", Place{0, 1}, std::vector<int>{0},
                                           std::make_unique<Post::Desk>(post, 0));
  const auto busy = std::make_shared<Busy>(ring);
  engine.submit([&] { return busy; }, true);
  std::thread waiter([&] { engine.wait(*busy, std::nullopt); });
  int turns = 0;  // from the moment when a call was to begin
  for (int i = 0; i < kCalls; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int before = busy->turns;
    engine.submit(
        [&] {
          turns += busy->turns - before;
          return std::make_shared<Collective>(ring, Signature{.kind = Kind::kBarrier}, Schedule{},
                                              64, kTimeoutS);
        },
        true);
  }
  busy->is_over = true;
  waiter.join();
  engine.stop();
  CHECK(turns < 20 * kCalls);  // two, and more where this thread has lost its core in between
}

TEST_CASE("each request is given back once where taking a piece fails") {
  SteppedRanks ranks(3);
  Bytes sent(128);
  Bytes got(256);
  for (const int rank : {1, 2}) {
    ranks.desks[static_cast<size_t>(rank)]->send(call_of(0, Kind::kAllGather), sent.data(),
                                                 sent.size());
  }
  Schedule schedule;
  schedule.rounds.push_back(
      {{{1, true, got.data(), 128}, {1, false, sent.data(), 128}, {2, true, got.data() + 128, 128}},
       nullptr});
  schedule.staging = std::make_shared<LostGpu>(1);
  const auto call = ranks.begin(0, {.kind = Kind::kAllGather}, std::move(schedule));
  REQUIRE(ranks.finish({call}));
  CHECK(call->failure == "[test] the GPU is lost");
  CHECK(ranks.desks[0]->stale() == 0);
}

TEST_CASE("a group that fails waits once for what its calls have under way") {
  SteppedRanks ranks(2);
  Bytes sent(1000);
  std::vector<std::shared_ptr<Call>> calls;
  for (int i = 0; i < 20; ++i) {
    calls.push_back(ranks.begin(0, {.kind = Kind::kBroadcast},
                                broadcast(ranks.place(0), {sent.data(), sent.size()}, 0)));
  }
  ranks.desks[0]->jam();
  REQUIRE(ranks.finish(calls));  // rank 1 does not come
  for (const auto& call : calls) {
    CHECK(call->failure.find("rank 1 did not come to broadcast (call 0") != std::string::npos);
  }
  CHECK(ranks.desks[0]->waits_in_vain() == 1);
}

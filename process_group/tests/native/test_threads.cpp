#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/collective.h"
#include "engine/engine.h"
#include "post.h"
#include "schedule/collectives.h"

// Ranks in threads: their waiters, and the engine's own thread, carry calls on beside each other.

using namespace gear::process_group;
using gear::process_group::testing::Post;

namespace {

constexpr int kRanks = 3;
constexpr int kCalls = 60;
constexpr double kTimeoutS = 300;

void play(Post& post, int rank, bool awaited) {
  const SteadyClock clock;
  Engine engine(clock);
  std::vector<int> world(kRanks);
  std::iota(world.begin(), world.end(), 0);
  const auto ring = std::make_shared<Ring>("group", Place{rank, kRanks}, world,
                                           std::make_unique<Post::Desk>(post, rank));
  std::vector<std::vector<int32_t>> values;
  std::vector<std::shared_ptr<Call>> calls;
  for (int one = 0; one < kCalls; ++one) {
    values.emplace_back(static_cast<size_t>(1 + one * 97), rank + one);
  }
  for (int one = 0; one < kCalls; ++one) {
    auto& own = values[static_cast<size_t>(one)];
    std::shared_ptr<Call> call;
    engine.submit(
        [&] {
          call = std::make_shared<Collective>(
              ring, Signature{.kind = Kind::kAllReduce},
              all_reduce({rank, kRanks}, {Element::kI32}, reinterpret_cast<std::byte*>(own.data()),
                         own.size()),
              1024, kTimeoutS);
          return call;
        },
        awaited);
    calls.push_back(call);
    if (awaited) {
      engine.wait(*call, std::nullopt);
    }
  }
  for (const auto& call : calls) {
    engine.wait(*call, std::nullopt);
  }
  engine.stop();
  for (int one = 0; one < kCalls; ++one) {
    const auto& own = values[static_cast<size_t>(one)];
    const int32_t wanted = kRanks * one + kRanks * (kRanks - 1) / 2;
    CHECK(calls[static_cast<size_t>(one)]->failure == "");
    CHECK(std::ranges::count(own, wanted) == static_cast<std::ptrdiff_t>(own.size()));
  }
}

}  // namespace

TEST_CASE("ranks in threads add up, call by call and with all calls under way") {
  for (const bool awaited : {true, false}) {
    CAPTURE(awaited);
    Post post(kRanks, 3);
    std::vector<std::thread> threads;
    threads.reserve(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&post, rank, awaited] { play(post, rank, awaited); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(post.left() == 0);
  }
}

#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/collective.h"
#include "engine/engine.h"
#include "post.h"

namespace gear::process_group::testing {

/// A clock that a test moves.
class ManualClock final : public Clock {
 public:
  Time now() const noexcept override { return now_; }
  void pass(std::chrono::milliseconds time) { now_ += time; }

 private:
  Time now_{std::chrono::hours(1)};
};

constexpr double kTimeoutS = 10;

/// Ranks of one group, each with an engine of its own, that are stepped by hand: one thread, a
/// manual clock, and turns in an order that follows from the seed.
class SteppedRanks {
 public:
  explicit SteppedRanks(int ranks, uint32_t lateness = 0, uint32_t seed = 1)
      : post_(ranks, lateness, seed), random_(seed) {
    std::vector<int> world(static_cast<size_t>(ranks));
    std::iota(world.begin(), world.end(), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      auto desk = std::make_unique<Post::Desk>(post_, rank);
      desks.push_back(desk.get());
      rings.push_back(std::make_shared<Ring>("group", Place{rank, ranks}, world, std::move(desk)));
      engines_.push_back(std::make_unique<Engine>(clock));
    }
  }
  ~SteppedRanks() {
    for (const auto& engine : engines_) {
      engine->stop();
    }
  }
  SteppedRanks(const SteppedRanks&) = delete;
  SteppedRanks& operator=(const SteppedRanks&) = delete;

  int size() const { return post_.size(); }
  Place place(int rank) const { return {rank, size()}; }
  size_t messages_left() { return post_.left(); }

  std::shared_ptr<Call> submit(int rank, const std::function<std::shared_ptr<Call>()>& make) {
    std::shared_ptr<Call> call;
    engines_[static_cast<size_t>(rank)]->submit([&] { return call = make(); }, true);
    return call;
  }
  std::shared_ptr<Call> begin(int rank, const Signature& signature, Schedule schedule,
                              uint64_t segment_bytes = 1 << 20) {
    return submit(rank, [&] {
      return std::make_shared<Collective>(rings[static_cast<size_t>(rank)], signature,
                                          std::move(schedule), segment_bytes, kTimeoutS);
    });
  }

  /// Each rank carries on its calls, `turns` times; the clock moves by 3 ms a turn.
  void step(int turns) {
    std::vector<size_t> order(engines_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (int turn = 0; turn < turns; ++turn) {
      std::shuffle(order.begin(), order.end(), random_);
      for (const size_t rank : order) {
        engines_[rank]->drive();
      }
      clock.pass(std::chrono::milliseconds(3));
    }
  }
  /// Until all of these have ended, which takes less than their time-outs and a while.
  bool finish(const std::vector<std::shared_ptr<Call>>& calls) {
    for (int turn = 0; turn < 10'000; ++turn) {
      if (std::ranges::all_of(calls, [](const auto& call) { return call->done.load(); })) {
        return true;
      }
      step(1);
    }
    return false;
  }

  ManualClock clock;
  std::vector<std::shared_ptr<Ring>> rings;
  std::vector<Post::Desk*> desks;  // of the rings

 private:
  Post post_;
  std::minstd_rand random_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace gear::process_group::testing

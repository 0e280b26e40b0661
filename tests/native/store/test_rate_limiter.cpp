#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "expect_message.h"
#include "store/shard.h"
#include "store/writing/rate_limiter.h"
#include "store/writing/writer.h"

using namespace gear::store;
using gear::store::Writer;
using gear::testing::expect_message;

namespace {

std::shared_ptr<Shard> make_shard(const RateLimiter& limiter) {
  ShardOptions options;
  options.capacity = 64;
  options.page_steps = 4;
  options.rate_limiter = limiter;
  return std::make_shared<Shard>(Schema({{"x", {}, gear::base::DType::kU8}}), options);
}

// Appends `steps` steps; returns how many were let in.
uint64_t append(const std::shared_ptr<Shard>& shard, uint64_t steps, double timeout_s) {
  Writer writer(shard);
  const std::vector<std::byte> rows(steps);
  const std::byte* columns[] = {rows.data()};
  uint64_t done = 0;
  const bool all = writer.append_some(columns, steps, {}, done, timeout_s);
  CHECK(all == (done == steps));
  return done;
}

void sample(RateLimiter& limiter, uint64_t items) {
  limiter.taken(items);
  limiter.delivered(items);
}

void sample(Shard& shard, uint64_t items) {
  std::unique_lock<std::mutex> lock = shard.lock();
  shard.deliver(shard.commit(lock, items, nullptr));
}

}  // namespace

TEST_CASE("rate limits that cannot be are refused") {
  for (const double wrong : {-1.0, std::nan("")}) {
    expect_message<gear::base::InvalidArgument>([&] { RateLimiter(wrong, 0, 1); },
                                                "[buffer] rate limit");
    CHECK_THROWS_AS(RateLimiter(1, 0, wrong), gear::base::InvalidArgument);
  }
  expect_message<gear::base::InvalidArgument>([] { RateLimiter(4, 0, 3); }, "slack 3", "raise it");
  CHECK_NOTHROW(RateLimiter(4, 0, 4));
  CHECK_NOTHROW(RateLimiter(0, 10, 0));
}

TEST_CASE("without a limit everything is allowed; min_steps alone holds up samples only") {
  const RateLimiter none;
  CHECK(!none.active());
  CHECK((none.room() >= 1000 && none.may_sample(1000)));
  RateLimiter least(0, 10, 0);
  CHECK(least.active());
  CHECK(least.room() >= 1000);
  least.inserted(9);
  CHECK(!least.may_sample(1));
  least.inserted(1);
  CHECK(least.may_sample(1000));
}

TEST_CASE("inserts and samples stay within the slack of each other") {
  RateLimiter limiter(2, 10, 8);
  CHECK(limiter.room() == 14);  // difference 4 * 2
  limiter.inserted(10);
  CHECK(limiter.may_sample(8));
  CHECK(!limiter.may_sample(9));
  sample(limiter, 8);
  CHECK(!limiter.may_sample(1));
  CHECK(limiter.room() == 8);
  limiter.inserted(1);
  CHECK(limiter.may_sample(2));
  CHECK(!limiter.may_sample(3));
  limiter.restore(0, 0);
  CHECK(!limiter.may_sample(1));
  CHECK((limiter.num_sampled() == 0 && limiter.num_inserted() == 0));
}

TEST_CASE("who waits for room is woken by samples, and gives up after its time") {
  const auto shard = make_shard(RateLimiter(1, 0, 4));
  CHECK(append(shard, 9, 0.0) == 4);
  CHECK(append(shard, 1, 0.0) == 0);
  CHECK(append(shard, 1, 0.02) == 0);
  CHECK(shard->rate_limiter().num_inserted() == 4);
  std::thread sampler([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    sample(*shard, 3);
  });
  CHECK(append(shard, 3, 60.0) == 3);
  sampler.join();
  CHECK(append(shard, 1, 0.0) == 0);
}

TEST_CASE("a wait without end in sight is as long as the clock allows") {
  for (const double timeout_s : {1e10, 1e300, HUGE_VAL}) {
    CAPTURE(timeout_s);
    const auto shard = make_shard(RateLimiter(1, 0, 1));
    CHECK(append(shard, 1, 0.0) == 1);
    std::thread sampler([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      sample(*shard, 1);
    });
    CHECK(append(shard, 1, timeout_s) == 1);
    sampler.join();
  }
}

TEST_CASE("a batch that no order of calls would allow is refused; the largest other one is drawn") {
  for (const double samples_per_insert : {0.3, 1.0, 4.0, 7.5}) {
    for (const double slack : {8.0, 10.0, 33.3}) {
      RateLimiter limiter(samples_per_insert, 3, slack);
      const auto most = static_cast<uint64_t>(2 * slack - samples_per_insert);
      CHECK_NOTHROW(limiter.check_batch(most));
      expect_message<gear::base::InvalidArgument>([&] { limiter.check_batch(most + 1); },
                                                  gear::base::cat("batch_size ", most + 1),
                                                  "raise slack", "lower batch_size");
      for (int draws = 0; draws < 50; ++draws) {
        while (limiter.room() > 0) {
          limiter.inserted(1);
        }
        REQUIRE(limiter.may_sample(most));
        sample(limiter, most);
      }
    }
  }
  CHECK_NOTHROW(RateLimiter(0, 10, 0).check_batch(1 << 20));
}

TEST_CASE("steps that are not stored are not counted") {
  ShardOptions options;
  options.page_steps = 2;
  options.capacity = 2;
  options.rate_limiter = RateLimiter(1, 1, 10);
  const auto shard = std::make_shared<Shard>(Schema({{"x", {}, gear::base::DType::kU8}}), options);
  const std::byte row[3] = {};
  const std::byte* columns[] = {row};
  Writer first(shard);
  Writer second(shard);
  first.append(columns, 1, {});
  for (int i = 0; i < 30; ++i) {
    CHECK_THROWS_AS(second.append(columns, 1, {}), gear::base::OutOfMemory);
  }
  CHECK(shard->rate_limiter().num_inserted() == 1);
  // Of an append that fails halfway, those before are stored and counted.
  uint64_t done = 0;
  CHECK_NOTHROW(first.append_some(columns, 1, {}, done, 0.0));
  CHECK(shard->rate_limiter().num_inserted() == shard->index().state().counters.steps_inserted);
}

TEST_CASE("more steps than the slack go in as samples are taken") {
  const auto shard = make_shard(RateLimiter(1, 0, 4));
  std::thread sampler([&] {
    for (uint64_t sampled = 0; sampled < 40;) {
      auto lock = shard->lock();
      const bool allowed = shard->wait_sample(lock, 4, nullptr, 60.0);
      REQUIRE(allowed);
      shard->deliver(shard->commit(lock, 4, nullptr));
      sampled += 4;
    }
  });
  CHECK(append(shard, 40, 60.0) == 40);
  sampler.join();
  CHECK(shard->rate_limiter().num_inserted() == 40);
}

TEST_CASE("who waits is told the counts and what it waits for") {
  RateLimiter limiter(4, 10, 1000);
  limiter.inserted(3);
  const std::string counts =
      "3 steps inserted (min_steps 10), 0 items sampled, samples_per_insert 4, slack 1000: ";
  CHECK(limiter.sampling_waits_for(32) == counts + "a batch of 32 is allowed after 7 more steps");
  CHECK(limiter.inserting_waits_for() == counts + "the next step is allowed");
  // What is told is what ends the wait, and no less does.
  for (const double per_insert : {0.5, 1.0, 4.0}) {
    for (uint64_t batch = 1; batch <= 8; ++batch) {
      RateLimiter samples(per_insert, 5, 9);
      samples.inserted(samples.room());
      while (samples.may_sample(batch)) {
        sample(samples, batch);
      }
      uint64_t steps = 0;
      const std::string said = samples.sampling_waits_for(batch);
      for (; !samples.may_sample(batch); ++steps) {
        samples.inserted(1);
      }
      CHECK(said.ends_with(
          gear::base::cat("after ", steps, steps == 1 ? " more step" : " more steps")));
      samples.inserted(samples.room());
      uint64_t drawn = 0;
      const std::string told = samples.inserting_waits_for();
      for (; samples.room() == 0; ++drawn) {
        sample(samples, 1);
      }
      CHECK(told.ends_with(
          gear::base::cat("after ", drawn, drawn == 1 ? " more sample" : " more samples")));
    }
  }
  RateLimiter least(0, 2, 0);
  CHECK(least.sampling_waits_for(1).ends_with("a batch of 1 is allowed after 2 more steps"));
  least.inserted(2);
  CHECK(least.sampling_waits_for(1).ends_with("a batch of 1 is allowed"));
}

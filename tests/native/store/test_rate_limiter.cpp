#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "base/errors.h"
#include "expect_message.h"
#include "store/rate_limiter.h"
#include "store/shard.h"

using namespace gear::store;
using gear::testing::expect_message;

namespace {

std::shared_ptr<Shard> make_shard(const RateLimiter& limiter) {
  ShardOptions options;
  options.capacity = 64;
  options.rate_limiter = limiter;
  return std::make_shared<Shard>(Schema({{"x", {}, gear::base::DType::kU8}}), options);
}

bool reserve(Shard& shard, uint64_t steps, double timeout_s) {
  auto lock = shard.lock();
  return shard.reserve_insert(lock, steps, timeout_s);
}

}  // namespace

TEST_CASE("rate limits that cannot be are refused") {
  for (const double wrong : {-1.0, std::nan("")}) {
    expect_message<gear::base::InvalidArgument>([&] { RateLimiter(wrong, 0, 1); },
                                                "[store] rate limit");
    CHECK_THROWS_AS(RateLimiter(1, 0, wrong), gear::base::InvalidArgument);
  }
  expect_message<gear::base::InvalidArgument>([] { RateLimiter(4, 0, 3); }, "slack 3", "raise it");
  CHECK_NOTHROW(RateLimiter(4, 0, 4));
  CHECK_NOTHROW(RateLimiter(0, 10, 0));
}

TEST_CASE("without a limit everything is allowed; min_steps alone holds up samples only") {
  const RateLimiter none;
  CHECK(!none.active());
  CHECK((none.may_insert(1000) && none.may_sample(1000)));
  RateLimiter least(0, 10, 0);
  CHECK(least.active());
  CHECK(least.may_insert(1000));
  least.inserted(9);
  CHECK(!least.may_sample(1));
  least.inserted(1);
  CHECK(least.may_sample(1000));
}

TEST_CASE("inserts and samples stay within the slack of each other") {
  RateLimiter limiter(2, 10, 8);
  CHECK(limiter.may_insert(10));
  CHECK(limiter.may_insert(14));  // difference 4 * 2
  CHECK(!limiter.may_insert(15));
  limiter.inserted(10);
  CHECK(limiter.may_sample(8));
  CHECK(!limiter.may_sample(9));
  limiter.sampled(8);
  CHECK(!limiter.may_sample(1));
  CHECK(limiter.may_insert(8));
  CHECK(!limiter.may_insert(9));
  limiter.inserted(1);
  CHECK(limiter.may_sample(2));
  CHECK(!limiter.may_sample(3));
  limiter.restore(0, 0);
  CHECK(!limiter.may_sample(1));
  CHECK((limiter.num_sampled() == 0 && limiter.num_inserted() == 0));
}

TEST_CASE("who waits for room is woken by samples, and gives up after its time") {
  const auto shard = make_shard(RateLimiter(1, 0, 4));
  CHECK(reserve(*shard, 4, 0.0));
  CHECK(!reserve(*shard, 1, 0.0));
  CHECK(!reserve(*shard, 1, 0.02));
  CHECK(shard->rate_limiter().num_inserted() == 4);
  std::thread sampler([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    {
      const auto lock = shard->lock();
      shard->rate_limiter().sampled(3);
    }
    shard->notify_progress();
  });
  CHECK(reserve(*shard, 3, 60.0));
  sampler.join();
  CHECK(!reserve(*shard, 1, 0.0));
}

TEST_CASE("a wait without end in sight is as long as the clock allows") {
  for (const double timeout_s : {1e10, 1e300, HUGE_VAL}) {
    CAPTURE(timeout_s);
    const auto shard = make_shard(RateLimiter(1, 0, 1));
    CHECK(reserve(*shard, 1, 0.0));
    std::thread sampler([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      {
        const auto lock = shard->lock();
        shard->rate_limiter().sampled(1);
      }
      shard->notify_progress();
    });
    CHECK(reserve(*shard, 1, timeout_s));
    sampler.join();
  }
}

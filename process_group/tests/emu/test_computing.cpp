#include <doctest/doctest.h>

#include <chrono>

#include "emu/computing.h"

namespace gear::emu {
namespace {

Time at(int ms) { return Time(std::chrono::milliseconds(1000 + ms)); }

TEST_CASE("what is not waited for is computed") {
  Computing computing;
  CHECK(computing.arrive(at(0)).computed_s == 0);
  computing.wait(at(2), at(10));
  const auto spent = computing.arrive(at(15));
  CHECK(spent.computed_s == doctest::Approx(0.007));
  CHECK(spent.waited_s == doctest::Approx(0.008));
}

TEST_CASE("who follows the last operation by a future waits for it") {
  Computing computing;
  computing.arrive(at(0));
  CHECK(computing.end_followed(at(0), at(5)) == at(0));
  computing.arrive(at(6));
  computing.arrive(at(8));
  CHECK(computing.end_followed(at(6), at(9)) == at(9));  // another has begun since
  CHECK(computing.end_followed(at(8), at(12)) == at(8));
  const auto spent = computing.arrive(at(12));
  CHECK(spent.computed_s == doctest::Approx(0.003));
  CHECK(spent.waited_s == doctest::Approx(0.009));
}

TEST_CASE("a copy falls behind while both compute, and catches up while the process waits") {
  Lag lag;
  CHECK(lag.at({0.010, 0}, 1.5) == doctest::Approx(0.005));
  CHECK(lag.at({0.020, 0}, 1.5) == doctest::Approx(0.010));
  CHECK(lag.at({0.020, 0.004}, 1.5) == doctest::Approx(0.006));
  CHECK(lag.at({0.030, 0.100}, 1.5) == doctest::Approx(0.005));
}

TEST_CASE("in step after step a slow copy is late by what it computes longer, and no more") {
  Computing computing;
  Lag lag;
  Time now = at(0);
  for (int step = 0; step < 100; ++step) {
    now += std::chrono::milliseconds(10);
    const double late_s = lag.at(computing.arrive(now), 1.3);
    CHECK(late_s == doctest::Approx(step == 0 ? 0 : 0.003).epsilon(1e-6));
    const Time end =
        now + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(late_s));
    computing.end_followed(now, end);
    now = end;
  }
}

}  // namespace
}  // namespace gear::emu

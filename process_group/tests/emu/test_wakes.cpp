#include <doctest/doctest.h>

#include "emu/wakes.h"

namespace gear::emu {
namespace {

using std::chrono::microseconds;

TEST_CASE("wakes: a sleep that ends late makes the next ones shorter, for a while") {
  Wakes wakes;
  const Time time{};
  CHECK(time - wakes.before(time) == Wakes::kLeast);
  wakes.woke(time, time + microseconds(400));
  CHECK(time - wakes.before(time) == microseconds(500));
  wakes.woke(time, time);
  CHECK(time - wakes.before(time) < microseconds(500));
  CHECK(time - wakes.before(time) > microseconds(400));
  for (int i = 0; i < 100; ++i) {
    wakes.woke(time, time + microseconds(10));
  }
  CHECK(time - wakes.before(time) == Wakes::kLeast);
}

TEST_CASE("wakes: one that ends very late keeps no core for long") {
  Wakes wakes;
  wakes.woke(Time{}, Time{} + std::chrono::seconds(1));
  CHECK(Time{} - wakes.before(Time{}) == Wakes::kMost);
}

}  // namespace
}  // namespace gear::emu

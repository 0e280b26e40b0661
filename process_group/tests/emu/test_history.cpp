#include <doctest/doctest.h>

#include "emu/history.h"

using gear::emu::Flow;
using gear::emu::History;

TEST_CASE("a history keeps the first, and counts what it has no room for") {
  History history;
  history.begin();
  const auto flow = std::make_shared<Flow>();
  for (uint64_t call = 0; call < History::kMost + 3; ++call) {
    history.add(History::Operation{"all_reduce", 0, 8, call, 4, {}, flow});
  }
  CHECK(history.left_out() == 3);
  history.add(History::Wait{"all_reduce", {}, {}});
  CHECK(history.left_out() == 3);
  CHECK(history.waits().size() == 1);
  const auto kept = history.operations();
  REQUIRE(kept.size() == History::kMost);
  CHECK(kept.front().call == 0);
  CHECK(kept.back().call == History::kMost - 1);
}

TEST_CASE("a history that nobody wants keeps nothing, and lacks nothing") {
  History history;
  history.add(History::Operation{"all_reduce", 0, 8, 0, 4, {}, std::make_shared<Flow>()});
  history.add(History::Wait{"all_reduce", {}, {}});
  CHECK(history.operations().empty());
  CHECK(history.waits().empty());
  CHECK(history.left_out() == 0);
}

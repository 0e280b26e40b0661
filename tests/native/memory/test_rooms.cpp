#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "memory/rooms.h"

using namespace gear;

TEST_CASE("a room that was given back is the next one of its size") {
  memory::Rooms rooms;
  const std::byte* const first = rooms.take(1'000).get();
  CHECK(rooms.kept_bytes() == 1'024);
  {
    const memory::Room second = rooms.take(600);
    CHECK(second.get() == first);
    CHECK(rooms.kept_bytes() == 0);
    CHECK(rooms.take(600).get() != first);
  }
  CHECK(rooms.kept_bytes() == 2 * 1'024);
}

TEST_CASE("rooms that are in use at once are all kept for the next time") {
  memory::Rooms rooms;
  std::set<const std::byte*> seen;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<memory::Room> used;
    for (const uint64_t bytes : {32ULL << 20, 8ULL << 20, 8ULL << 20, 1ULL << 10}) {
      used.push_back(rooms.take(bytes));
      seen.insert(used.back().get());
    }
  }
  CHECK(seen.size() == 4);
}

TEST_CASE("rooms keep no more than twice what was in use at once, and none of the largest") {
  memory::Rooms rooms;
  for (uint64_t bytes = 1; bytes <= 1 << 24; bytes *= 2) {
    rooms.take(bytes);
    CHECK(rooms.kept_bytes() <= 2 * bytes);
  }
  const uint64_t before = rooms.kept_bytes();
  rooms.take((1ULL << 30) + 1);
  CHECK(rooms.kept_bytes() == before);
}

TEST_CASE("what was needed once goes back to the system after a time") {
  memory::Rooms rooms;
  rooms.take(256 << 20);
  CHECK(rooms.kept_bytes() == 256 << 20);
  for (int turn = 0; turn < 20'000; ++turn) {
    rooms.take(1'000);
  }
  CHECK(rooms.kept_bytes() < 1 << 20);
}

TEST_CASE("a room that is released is never given out again") {
  memory::Rooms rooms;
  const std::byte* const kept = rooms.take(4'096).get();
  memory::Room lent = rooms.take(4'096);
  REQUIRE(lent.get() == kept);
  std::byte* const released = lent.release();
  CHECK(rooms.take(4'096).get() != released);
  delete[] released;
}

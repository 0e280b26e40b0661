#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "store/index/dirty.h"

using namespace gear::store;

namespace {

struct Taken {
  std::vector<uint32_t> pages;
  std::vector<uint32_t> episodes;

  bool operator==(const Taken&) const = default;
};

Taken take(Dirty::Reader& reader) {
  Taken taken;
  reader.take(3, taken.pages, taken.episodes);
  std::ranges::sort(taken.pages);
  std::ranges::sort(taken.episodes);
  return taken;
}

}  // namespace

TEST_CASE("readers take what changed since each of them looked, once") {
  Dirty dirty(4, 8);
  dirty.page(1);  // nobody reads yet
  Dirty::Reader early(dirty);
  CHECK(take(early) == Taken{{0, 1, 2, 3}, {0, 1, 2}});
  CHECK(early.nothing_new());
  dirty.page(2);
  dirty.page(0);
  dirty.page(2);
  dirty.episode(1);
  Dirty::Reader late(dirty);
  CHECK_FALSE(early.nothing_new());
  CHECK(take(early) == Taken{{0, 2}, {1}});
  CHECK(take(late) == Taken{{0, 1, 2, 3}, {0, 1, 2}});
  dirty.page(0);
  CHECK(take(late) == Taken{{0}, {}});
  dirty.page(3);
  dirty.page(0);
  dirty.episode(2);
  CHECK(take(late) == Taken{{0, 3}, {2}});
  CHECK(take(early) == Taken{{0, 3}, {2}});
  CHECK(take(early) == Taken{});
  early.start_over();
  CHECK_FALSE(early.nothing_new());
  CHECK(take(early) == Taken{{0, 1, 2, 3}, {0, 1, 2}});
  CHECK(late.nothing_new());
}

TEST_CASE(
    "steps that were appended without a priority are known from when priorities are followed") {
  Dirty dirty(4, 8);
  const std::vector<float> first = {-1.0F, 2.0F};
  dirty.appended(2, 0, first);
  CHECK_FALSE(dirty.took_default(16));
  dirty.follow_priorities();
  dirty.appended(2, 0, first);
  CHECK(dirty.took_default(16));
  CHECK_FALSE(dirty.took_default(17));
  dirty.appended(2, 0, std::vector<float>{1.0F});
  CHECK_FALSE(dirty.took_default(16));
}

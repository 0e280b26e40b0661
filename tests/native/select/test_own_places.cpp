// A rank's items of a shuffled epoch, against looking at every item of the epoch.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "select/group/own_places.h"

using namespace gear::select;
using gear::base::Permutation;

namespace {

struct Found {
  std::vector<uint32_t> numbers;
  std::vector<uint64_t> offsets;

  friend bool operator==(const Found&, const Found&) = default;
};

Found looked_at(const Permutation& order, uint64_t begin, uint64_t size, uint64_t first,
                uint64_t items) {
  Found found;
  for (uint64_t i = 0; i < items; ++i) {
    const uint64_t offset = order(first + i) - begin;
    if (offset < size) {
      found.numbers.push_back(static_cast<uint32_t>(i));
      found.offsets.push_back(offset);
    }
  }
  return found;
}

Found asked(OwnPlaces& places, const Permutation& order, uint64_t begin, uint64_t size,
            uint64_t first, uint64_t items) {
  Found found{{7}, {7}};  // replaced
  places.find(order, begin, size, first, items, found.numbers, found.offsets);
  return found;
}

}  // namespace

TEST_CASE("own places: a rank's items of every batch of an epoch, whatever a stretch holds") {
  for (const uint64_t all : {1ULL, 40ULL, 1000ULL, 40000ULL}) {
    for (const uint64_t keep : {1ULL, 50ULL, 65536ULL}) {
      const Permutation order(all, keep, 3);
      const uint64_t begin = all / 3;
      const uint64_t size = all / 2;  // two parts of the pass, of the largest
      OwnPlaces places(keep);
      const uint64_t batch = all / 9 + 1;
      CAPTURE(all);
      CAPTURE(keep);
      for (uint64_t first = 0; first < all; first += batch) {
        const uint64_t items = std::min(batch, all - first);
        REQUIRE(asked(places, order, begin, size, first, items) ==
                looked_at(order, begin, size, first, items));
      }
    }
  }
}

TEST_CASE("own places: another epoch, range or place is another answer") {
  OwnPlaces places(20);
  const Permutation order(5000, 1, 2);
  const Permutation later(5000, 1, 3);
  const auto check = [&](const Permutation& of, uint64_t begin, uint64_t size, uint64_t first) {
    CHECK(asked(places, of, begin, size, first, 900) == looked_at(of, begin, size, first, 900));
  };
  check(order, 100, 200, 3000);
  check(order, 100, 200, 0);  // back, as a restored loader goes
  check(later, 100, 200, 0);
  check(later, 101, 200, 0);
  check(later, 101, 300, 0);
  check(later, 0, 0, 0);  // a rank that has nothing
  check(later, 0, 5000, 4100);
  CHECK(asked(places, later, 0, 5000, 4100, 0) == Found{});
}

TEST_CASE("own places: they pay where a rank has a small part of all") {
  const OwnPlaces places;
  CHECK(places.pays(512 * 2000, 2000));
  CHECK(places.pays(64 * 1'000'000, 1'000'000));
  CHECK(places.pays(1000, 0));
  CHECK(!places.pays(8 * 2000, 2000));
  CHECK(!places.pays(64 * 100'000'000ULL, 100'000'000));  // a pass over all for every stretch
}

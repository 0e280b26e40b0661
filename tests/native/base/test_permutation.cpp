#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/numbers/permutation.h"

using namespace gear::base;

namespace {

bool is_bijection(uint64_t size, uint64_t key) {
  const Draw128 keys = philox(key, 0, size);
  const Permutation order(size, keys.hi, keys.lo);
  std::vector<bool> seen(size, false);
  for (uint64_t i = 0; i < size; ++i) {
    const uint64_t element = order(i);
    if (element >= size || seen[element]) {
      return false;
    }
    seen[element] = true;
  }
  return true;
}

// 3.09 standard deviations above the mean: p = 0.001 (Wilson and Hilferty).
double chi_square_limit(double degrees) {
  const double spread = 2 / (9 * degrees);
  return degrees * std::pow(1 - spread + 3.09 * std::sqrt(spread), 3);
}

// Chi-square of table[position][element] over many keys; every pair is equally likely.
double chi_square_of_positions(uint64_t size, uint64_t num_keys) {
  std::vector<double> counts(size * size, 0);
  for (uint64_t key = 0; key < num_keys; ++key) {
    const Draw128 keys = philox(42, 1, key);
    const Permutation order(size, keys.hi, keys.lo);
    for (uint64_t i = 0; i < size; ++i) {
      counts[i * size + order(i)] += 1;
    }
  }
  const double expected = static_cast<double>(num_keys) / static_cast<double>(size);
  double chi_square = 0;
  for (const double count : counts) {
    chi_square += (count - expected) * (count - expected) / expected;
  }
  // Rows and columns both sum to a constant; so scaled, it has (n-1)^2 degrees of freedom.
  return chi_square * static_cast<double>(size - 1) / static_cast<double>(size);
}

}  // namespace

TEST_CASE("a permutation is a bijection at every size") {
  for (uint64_t size = 1; size <= 2000; ++size) {
    REQUIRE_MESSAGE(is_bijection(size, size % 3), "size ", size);
  }
  for (const uint64_t size :
       {uint64_t{65535}, uint64_t{65536}, uint64_t{65537}, uint64_t{1000003}}) {
    CHECK_MESSAGE(is_bijection(size, 5), "size ", size);
  }
}

TEST_CASE("a permutation of a huge range stays inside it and repeats nothing") {
  for (const uint64_t size : {(uint64_t{1} << 40) + 1, (uint64_t{1} << 62) + 3, ~uint64_t{0}}) {
    const Permutation order(size, 1, 2);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t element = order(size - 1 - i);
      CHECK(element < size);
      CHECK(seen.insert(element).second);
    }
  }
}

TEST_CASE("every element is equally likely at every position") {
  for (const uint64_t size : {uint64_t{2}, uint64_t{3}, uint64_t{7}, uint64_t{16}, uint64_t{50}}) {
    const double degrees = static_cast<double>((size - 1) * (size - 1));
    CHECK_MESSAGE(chi_square_of_positions(size, 20000) < chi_square_limit(degrees), "size ", size);
  }
}

TEST_CASE("either key changes the order") {
  size_t same0 = 0;
  size_t same1 = 0;
  const Permutation order(1000, 10, 20);
  const Permutation other0(1000, 11, 20);
  const Permutation other1(1000, 10, 21);
  for (uint64_t i = 0; i < 1000; ++i) {
    same0 += order(i) == other0(i) ? 1 : 0;
    same1 += order(i) == other1(i) ? 1 : 0;
  }
  CHECK(same0 < 10);
  CHECK(same1 < 10);
}

TEST_CASE("every order of a few elements is equally likely") {
  for (const uint64_t size : {uint64_t{2}, uint64_t{3}, uint64_t{4}, uint64_t{5}}) {
    constexpr uint64_t kKeys = 60000;
    std::map<std::vector<uint64_t>, double> counts;
    for (uint64_t key = 0; key < kKeys; ++key) {
      const Draw128 keys = philox(7, 2, key);
      const Permutation order(size, keys.hi, keys.lo);
      std::vector<uint64_t> elements;
      for (uint64_t i = 0; i < size; ++i) {
        elements.push_back(order(i));
      }
      ++counts[elements];
    }
    double orders = 1;
    for (uint64_t i = 2; i <= size; ++i) {
      orders *= static_cast<double>(i);
    }
    REQUIRE(static_cast<double>(counts.size()) == orders);
    const double expected = static_cast<double>(kKeys) / orders;
    double chi_square = 0;
    for (const auto& [elements, count] : counts) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    CHECK_MESSAGE(chi_square < chi_square_limit(orders - 1), "size ", size);
  }
}

TEST_CASE("half of the orders of sixteen elements are odd") {
  uint64_t odd = 0;
  constexpr uint64_t kKeys = 4000;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const Draw128 keys = philox(8, 3, key);
    const Permutation order(16, keys.hi, keys.lo);
    for (uint64_t i = 0; i < 16; ++i) {
      for (uint64_t j = 0; j < i; ++j) {
        odd ^= order(j) > order(i) ? uint64_t{1} << 32 : 0;
      }
    }
    odd = (odd & 0xffffffff) + (odd >> 32);
  }
  CHECK(odd > kKeys * 45 / 100);
  CHECK(odd < kKeys * 55 / 100);
}

TEST_CASE("the elements of many positions are those of each one") {
  for (const uint64_t size : {1ULL, 2ULL, 63ULL, 64ULL, 65ULL, 257ULL, 1000ULL, 4096ULL, 4097ULL,
                              (1ULL << 32) + 1, ~0ULL}) {
    const Permutation order(size, 11, 13 * size);
    for (const uint64_t first : {uint64_t{0}, size / 3, size - 1}) {
      std::vector<uint64_t> elements(std::min<uint64_t>(size - first, 1500));
      order.elements_from(first, elements);
      for (uint64_t i = 0; i < elements.size(); ++i) {
        REQUIRE(elements[i] == order(first + i));
      }
    }
  }
}

TEST_CASE("a permutation goes backwards, many at a time") {
  for (const uint64_t size : {1ULL, 2ULL, 5ULL, 63ULL, 64ULL, 65ULL, 257ULL, 1000ULL, 4096ULL,
                              4097ULL, (1ULL << 32) + 1, ~0ULL}) {
    const Permutation order(size, 11, 13 * size);
    for (const uint64_t first : {uint64_t{0}, size / 3, size - 1}) {
      std::vector<uint64_t> indices(std::min<uint64_t>(size - first, 1500));
      order.indices_from(first, indices);
      for (uint64_t i = 0; i < indices.size(); ++i) {
        REQUIRE(order(indices[i]) == first + i);
      }
    }
  }
}

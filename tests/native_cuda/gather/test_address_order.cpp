#include "planned_content.h"

#include <algorithm>
#include <array>

using namespace gear::plan;
using namespace gear::gather;
using namespace gear::store;
using namespace gear::testing;
using gear::base::DType;

namespace {

constexpr uint64_t kItems = 5000;

// Rows of two windows of 3 and 1 steps, some of them zeros.
std::vector<std::vector<uint32_t>> random_rows(uint64_t num_slots) {
  std::vector<std::vector<uint32_t>> rows;
  for (const uint64_t length : {3, 1}) {
    std::vector<uint32_t>& slots = rows.emplace_back();
    for (uint64_t i = 0; i < kItems * length; ++i) {
      const bool zeros = random_below(10, length, i) == 0;
      slots.push_back(zeros ? kNone
                            : static_cast<uint32_t>(random_below(num_slots, 20 + length, i)));
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("rows are put in the order of host pages, each once, zeros last") {
  constexpr uint64_t kPages = 3000;
  // Steps of a MiB have pages of their own; 2^6 steps of 64 bytes share one.
  for (const auto& [bytes, bits] : {std::pair<int64_t, int>{1 << 20, 0}, {64, 6}}) {
    const Schema schema({{"a", {bytes}, DType::kU8}});
    const PageLayout pages(schema, 4);
    AddressOrder order(pages, kPages * pages.page_steps, kDevice);
    order.reserve(4 * kItems, 3 * kItems);
    const auto planned = random_rows(kPages * pages.page_steps);
    const auto first = upload(planned[0]);
    const auto second = upload(planned[1]);
    const gear::base::Stream stream(kDevice);
    for (const uint64_t items : {kItems, uint64_t{1}, uint64_t{0}, kItems - 1}) {
      const std::array lists{RowList{first.get(), nullptr, static_cast<uint32_t>(3 * items)},
                             RowList{second.get(), nullptr, static_cast<uint32_t>(items)}};
      const std::span<const RowList> sorted = order.launch(lists, stream);
      stream.synchronize();
      for (size_t w = 0; w < 2; ++w) {
        const uint64_t rows = lists[w].count;
        const std::vector<uint32_t> slots = download(sorted[w].slots, rows);
        const std::vector<uint32_t> numbers = download(sorted[w].targets, rows);
        std::vector<uint32_t> seen = numbers;
        std::sort(seen.begin(), seen.end());
        for (uint64_t i = 0; i < rows; ++i) {
          REQUIRE(seen[i] == i);
          REQUIRE(slots[i] == planned[w][numbers[i]]);
          if (i == 0) {
            continue;
          }
          const uint32_t part = slots[i] >> bits;
          const uint32_t before = slots[i - 1] >> bits;
          REQUIRE(before <= part);
          if (before == part) {
            REQUIRE(numbers[i - 1] < numbers[i]);
          }
        }
      }
    }
  }
}

TEST_CASE("a shard smaller than a host page is ordered all the same") {
  const Schema schema({{"a", {}, DType::kF32}});
  const PageLayout pages(schema, 16);
  for (const uint64_t num_pages : {1, 2, 100}) {
    AddressOrder order(pages, num_pages * pages.page_steps, kDevice);
    order.reserve(100, 100);
    std::vector<uint32_t> slots;
    for (uint64_t i = 0; i < 100; ++i) {
      slots.push_back(i % 3 == 0 ? kNone : static_cast<uint32_t>(i % (num_pages * 16)));
    }
    const auto planned = upload(slots);
    const gear::base::Stream stream(kDevice);
    const RowList list{planned.get(), nullptr, 100};
    const RowList sorted = order.launch({&list, 1}, stream)[0];
    stream.synchronize();
    std::vector<uint32_t> numbers = download(sorted.targets, 100);
    const std::vector<uint32_t> ordered = download(sorted.slots, 100);
    for (uint64_t i = 0; i < 100; ++i) {
      REQUIRE(ordered[i] == slots[numbers[i]]);
    }
    std::sort(numbers.begin(), numbers.end());
    for (uint32_t i = 0; i < 100; ++i) {
      REQUIRE(numbers[i] == i);
    }
  }
}

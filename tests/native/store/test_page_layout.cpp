#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "expect_message.h"
#include "store/page_layout.h"

using gear::base::DType;
using gear::store::Column;
using gear::store::PageLayout;
using gear::store::Schema;
using gear::testing::expect_message;

TEST_CASE("columns follow each other at multiples of 16, pages at multiples of 64") {
  const Schema schema(
      {{"obs", {7}, DType::kU8}, {"done", {}, DType::kBool}, {"reward", {}, DType::kF64}});
  const PageLayout layout(schema, 5);
  CHECK(layout.page_steps == 5);
  CHECK(layout.step_bytes == std::vector<uint64_t>{7, 1, 8});
  CHECK(layout.column_offset == std::vector<uint64_t>{0, 48, 64});
  CHECK(layout.page_bytes == 128);
  CHECK(layout.offset(0, 0, 0) == 0);
  CHECK(layout.offset(3, 1, 4) == 3 * 128 + 48 + 4);
  CHECK(layout.offset(1, 2, 2) == 128 + 64 + 16);
}

TEST_CASE("values of random layouts never overlap and are aligned to their columns") {
  for (uint64_t round = 0; round < 50; ++round) {
    auto random = [&, i = uint64_t{0}](uint64_t range) mutable {
      return gear::base::philox(round, 0, i++).lo % range;
    };
    std::vector<Column> columns;
    for (uint64_t c = 1 + random(6); c > 0; --c) {
      columns.push_back({"c" + std::to_string(c),
                         {static_cast<int64_t>(1 + random(40))},
                         static_cast<DType>(random(gear::base::kNumDTypes))});
    }
    const Schema schema(columns);
    const PageLayout layout(schema, 1 + random(20));
    CHECK(layout.page_bytes % PageLayout::kPageAlign == 0);
    std::vector<int> used(3 * layout.page_bytes, 0);
    for (uint64_t page = 0; page < 3; ++page) {
      for (size_t c = 0; c < schema.size(); ++c) {
        REQUIRE(layout.offset(page, c, 0) % PageLayout::kColumnAlign == 0);
        for (uint64_t row = 0; row < layout.page_steps; ++row) {
          const uint64_t begin = layout.offset(page, c, row);
          REQUIRE(begin >= page * layout.page_bytes);
          REQUIRE(begin + layout.step_bytes[c] <= (page + 1) * layout.page_bytes);
          for (uint64_t i = 0; i < layout.step_bytes[c]; ++i) {
            ++used[begin + i];
          }
        }
      }
    }
    for (const int times : used) {
      REQUIRE(times <= 1);
    }
  }
}

TEST_CASE("page_steps is 1 to 32768, and a column of a page stays below 4 GiB") {
  const Schema byte({{"x", {}, DType::kU8}});
  CHECK(PageLayout(byte, 1).page_bytes == 64);
  CHECK(PageLayout(byte, PageLayout::kMaxPageSteps).page_bytes == 32768);
  for (const uint64_t page_steps : {uint64_t{0}, uint64_t{32769}, ~uint64_t{0}}) {
    expect_message<gear::base::InvalidArgument>([&] { PageLayout(byte, page_steps); },
                                                "[buffer] page_steps ", "1 to 32768");
  }
  const Schema large({{"a", {}, DType::kU8}, {"x", {1 << 28}, DType::kU8}});
  CHECK(PageLayout(large, 15).page_bytes == 64 + 15 * uint64_t{1 << 28});
  expect_message<gear::base::InvalidArgument>(
      [&] { PageLayout(large, 16); }, "column 'x' takes 4294967296 bytes a page of 16 steps",
      "lower page_steps");
}

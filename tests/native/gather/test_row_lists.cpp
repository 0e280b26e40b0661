#include <doctest/doctest.h>

#include <vector>

#include "base/numbers/philox.h"
#include "gather/row_lists.h"

using namespace gear::plan;
using namespace gear::gather;
using gear::store::kNone;

namespace {

constexpr uint32_t kPageSteps = 16;

// Runs of 0 to 8 rows, some of zeros; targets in no order.
std::vector<Run> random_runs(uint64_t count, uint64_t seed) {
  std::vector<Run> runs;
  for (uint64_t i = 0; i < count; ++i) {
    const auto word = gear::base::philox(seed, 1, i);
    const auto page = static_cast<uint32_t>(word.lo % 1000);
    runs.push_back({page < 50 ? kNone : page, static_cast<uint32_t>(word.hi % kPageSteps),
                    static_cast<uint32_t>(word.hi >> 32) % 9,
                    static_cast<uint32_t>(word.lo >> 32) % 100000});
  }
  return runs;
}

}  // namespace

TEST_CASE("lists name every row of the runs, in their order, by however many threads") {
  gear::base::ThreadPool one(1);
  gear::base::ThreadPool three(3);
  for (const uint64_t count : {0, 1, 300, 8000, 16384, 16385, 70000}) {
    CAPTURE(count);
    const std::vector<Run> runs = random_runs(count, count);
    std::vector<uint32_t> slots;
    std::vector<uint32_t> targets;
    for (const Run& run : runs) {
      for (uint32_t i = 0; i < run.count; ++i) {
        slots.push_back(run.page == kNone ? kNone : run.page * kPageSteps + run.row + i);
        targets.push_back(run.target + i);
      }
    }
    for (gear::base::ThreadPool* pool : {&one, &three}) {
      REQUIRE(count_rows(runs, *pool) == slots.size());
      std::vector<uint32_t> listed(slots.size() + 1, 77);
      std::vector<uint32_t> to(slots.size() + 1, 77);
      list_rows(runs, slots.size(), kPageSteps, listed.data(), to.data(), *pool);
      CHECK(listed.back() == 77);
      CHECK(to.back() == 77);
      listed.pop_back();
      to.pop_back();
      CHECK(listed == slots);
      CHECK(to == targets);
    }
  }
}

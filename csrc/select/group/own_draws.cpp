#include "select/group/own_draws.h"

#include "base/errors.h"

namespace gear::select {

OwnDraws::OwnDraws(uint32_t rank, uint32_t size)
    : rank_(rank), tree_(size), pool_(base::ThreadPool::shared()) {}

void OwnDraws::set_totals(std::span<const uint64_t> totals) {
  GEAR_CHECK(totals.size() == tree_.num_leaves());
  constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;
  uint64_t sum = 0;
  for (const uint64_t total : totals) {
    if (total > kMost - sum) {
      throw base::InvalidArgument(
          "[select] the weights of all ranks add up to 2^63 or more: lower the priorities or "
          "alpha");
    }
    sum += total;
  }
  tree_.set_run(0, totals);
}

}  // namespace gear::select

#include "select/group/rank_ranges.h"

#include <algorithm>
#include <array>

#include "base/errors.h"

namespace gear::select {

RankRanges::RankRanges(uint32_t rank, uint32_t size) : rank_(rank), tree_(size) {}

void RankRanges::set(std::span<const uint64_t> totals) {
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

size_t RankRanges::split(std::span<const uint64_t> targets, std::span<uint16_t> owners,
                         uint64_t* own) const {
  GEAR_CHECK(targets.size() == owners.size());
  std::array<store::SumTree::Hit, 256> hits;
  // Every target is written and only this rank's stay: draws are random, a branch would be too.
  size_t kept = 0;
  for (size_t done = 0; done < targets.size();) {
    const size_t count = std::min(hits.size(), targets.size() - done);
    tree_.find(targets.subspan(done, count), {hits.data(), count});
    for (size_t i = 0; i < count; ++i) {
      owners[done + i] = static_cast<uint16_t>(hits[i].leaf);
      own[kept] = hits[i].remainder;
      kept += hits[i].leaf == rank_ ? 1 : 0;
    }
    done += count;
  }
  return kept;
}

}  // namespace gear::select

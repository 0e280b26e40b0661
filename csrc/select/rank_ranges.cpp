#include "select/rank_ranges.h"

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

void RankRanges::split(std::span<const uint64_t> targets, std::span<uint16_t> owners,
                       std::vector<uint64_t>& own) {
  GEAR_CHECK(targets.size() == owners.size());
  hits_.resize(targets.size());
  tree_.find(targets, hits_);
  // Every target is written and only this rank's stay: draws are random, a branch would be too.
  size_t kept = own.size();
  own.resize(kept + targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    owners[i] = static_cast<uint16_t>(hits_[i].leaf);
    own[kept] = hits_[i].remainder;
    kept += hits_[i].leaf == rank_ ? 1 : 0;
  }
  own.resize(kept);
}

}  // namespace gear::select

#include "select/group/own_draws.h"

#include "base/errors.h"
#include "select/group/offers.h"

namespace gear::select {

OwnDraws::OwnDraws(uint32_t rank) : rank_(rank), pool_(base::ThreadPool::shared()) {}

void OwnDraws::set_totals(std::span<const uint64_t> totals) {
  GEAR_CHECK(rank_ < totals.size());
  constexpr uint64_t kMost = (uint64_t{1} << 63) - 1;
  all_ = 0;
  for (uint32_t r = 0; r < totals.size(); ++r) {
    if (totals[r] > kMost - all_) {
      throw_too_heavy();
    }
    if (r == rank_) {
      begin_ = all_;
    }
    all_ += totals[r];
  }
  size_ = totals[rank_];
}

}  // namespace gear::select

#include "store/rate_limiter.h"

#include "base/errors.h"

namespace gear::store {

RateLimiter::RateLimiter(double samples_per_insert, uint64_t min_steps, double slack)
    : samples_per_insert_(samples_per_insert), min_steps_(min_steps), slack_(slack) {
  if (!(samples_per_insert >= 0) || !(slack >= 0)) {
    throw base::InvalidArgument(base::cat("[store] rate limit of ", samples_per_insert,
                                          " samples per insert with slack ", slack,
                                          ": both must be 0 or more"));
  }
  if (samples_per_insert > 0 && slack < samples_per_insert) {
    throw base::InvalidArgument(
        base::cat("[store] slack ", slack, " of the rate limit is below samples_per_insert ",
                  samples_per_insert, ": no insert would ever be allowed; raise it"));
  }
}

double RateLimiter::difference() const {
  return (static_cast<double>(inserted_) - static_cast<double>(min_steps_)) * samples_per_insert_ -
         static_cast<double>(sampled_);
}

bool RateLimiter::may_sample(uint64_t steps) const {
  if (inserted_ < min_steps_) {
    return false;
  }
  return samples_per_insert_ == 0 || difference() - static_cast<double>(steps) >= -slack_;
}

bool RateLimiter::may_insert(uint64_t steps) const {
  if (samples_per_insert_ == 0 || inserted_ + steps <= min_steps_) {
    return true;
  }
  return difference() + static_cast<double>(steps) * samples_per_insert_ <= slack_;
}

void RateLimiter::restore(uint64_t num_sampled, uint64_t num_inserted) {
  sampled_ = num_sampled;
  inserted_ = num_inserted;
}

}  // namespace gear::store

#include "store/writing/rate_limiter.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"

namespace gear::store {

RateLimiter::RateLimiter(double samples_per_insert, uint64_t min_steps, double slack)
    : samples_per_insert_(samples_per_insert), min_steps_(min_steps), slack_(slack) {
  if (!(samples_per_insert >= 0) || !(slack >= 0) || std::isinf(samples_per_insert)) {
    throw base::InvalidArgument(
        base::cat("[buffer] rate limit of ", samples_per_insert, " samples per insert with slack ",
                  slack, ": both must be 0 or more, and samples per insert finite"));
  }
  if (samples_per_insert > 0 && slack < samples_per_insert) {
    throw base::InvalidArgument(
        base::cat("[buffer] slack ", slack, " of the rate limit is below samples_per_insert ",
                  samples_per_insert, ": no insert would ever be allowed; raise it"));
  }
}

void RateLimiter::check_batch(uint64_t batch_size) const {
  const double most = 2 * slack_ - samples_per_insert_;
  if (samples_per_insert_ == 0 || static_cast<double>(batch_size) <= most) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[buffer] batch_size ", batch_size, " under a rate limit of samples_per_insert ",
      samples_per_insert_, " with slack ", slack_,
      ": writers would wait for the loader and the loader for writers; at most "
      "2 * slack - samples_per_insert = ",
      most, " is allowed: raise slack to ",
      (static_cast<double>(batch_size) + samples_per_insert_) / 2, " or lower batch_size"));
}

double RateLimiter::difference() const {
  return (static_cast<double>(inserted_) - static_cast<double>(min_steps_)) * samples_per_insert_ -
         static_cast<double>(sampled_ + taken_);
}

bool RateLimiter::may_sample(uint64_t steps) const {
  if (inserted_ < min_steps_) {
    return false;
  }
  return samples_per_insert_ == 0 || difference() - static_cast<double>(steps) >= -slack_;
}

uint64_t RateLimiter::room() const {
  constexpr uint64_t kAny = uint64_t{1} << 62;
  if (samples_per_insert_ == 0) {
    return kAny;
  }
  const uint64_t before_any = min_steps_ - std::min(min_steps_, inserted_);
  const double left = slack_ - difference();
  const double steps = std::floor(left / samples_per_insert_);
  if (!(steps >= 1)) {
    return before_any;
  }
  uint64_t room = steps >= static_cast<double>(kAny) ? kAny : static_cast<uint64_t>(steps);
  room -= static_cast<double>(room) * samples_per_insert_ > left ? 1 : 0;  // the division rounds
  return std::max(before_any, room);
}

std::string RateLimiter::counts() const {
  return base::cat(inserted_, " steps inserted (min_steps ", min_steps_, "), ", sampled_,
                   " items sampled, samples_per_insert ", samples_per_insert_, ", slack ", slack_);
}

std::string RateLimiter::sampling_waits_for(uint64_t steps) const {
  double missing = static_cast<double>(min_steps_) - static_cast<double>(inserted_);
  if (samples_per_insert_ > 0) {
    const double behind = static_cast<double>(steps) - slack_ - difference();
    missing = std::max(missing, std::ceil(behind / samples_per_insert_));
  }
  if (missing < 1) {
    return base::cat(counts(), ": a batch of ", steps, " is allowed");
  }
  return base::cat(counts(), ": a batch of ", steps, " is allowed after ",
                   static_cast<uint64_t>(missing), missing == 1 ? " more step" : " more steps");
}

std::string RateLimiter::inserting_waits_for() const {
  const double missing = std::ceil(difference() + samples_per_insert_ - slack_);
  if (room() > 0 || missing < 1) {
    return base::cat(counts(), ": the next step is allowed");
  }
  return base::cat(counts(), ": the next step is allowed after ", static_cast<uint64_t>(missing),
                   missing == 1 ? " more sample" : " more samples");
}

void RateLimiter::restore(uint64_t num_sampled, uint64_t num_inserted) {
  sampled_ = num_sampled;
  inserted_ = num_inserted;
}

}  // namespace gear::store

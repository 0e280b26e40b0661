#include "emu/computing.h"

#include <algorithm>

namespace gear::emu {
namespace {

double seconds_between(Time from, Time to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

}  // namespace

void Computing::compute_until(Time now) {
  if (!has_begun_) {
    has_begun_ = true;
    accounted_ = now;
  }
  spent_.computed_s += seconds_between(accounted_, now);
  accounted_ = std::max(accounted_, now);
}

void Computing::wait_until(Time end) {
  spent_.waited_s += seconds_between(accounted_, end);
  accounted_ = std::max(accounted_, end);
}

Computing::Spent Computing::arrive(Time now) {
  const std::lock_guard guard(mutex_);
  compute_until(now);
  last_arrival_ = now;
  return spent_;
}

void Computing::wait(Time begin, Time end) {
  const std::lock_guard guard(mutex_);
  compute_until(begin);
  wait_until(end);
}

Time Computing::end_followed(Time arrival, Time end) {
  const std::lock_guard guard(mutex_);
  if (arrival != last_arrival_) {
    return end;
  }
  const Time from = std::min(accounted_, end);
  wait_until(end);
  return from;
}

double Lag::at(const Computing::Spent& spent, double factor) {
  const double computed_s = spent.computed_s - before_.computed_s;
  const double waited_s = spent.waited_s - before_.waited_s;
  before_ = spent;
  lag_s_ = std::max(0.0, lag_s_ - waited_s) + computed_s * (factor - 1);
  return lag_s_;
}

}  // namespace gear::emu

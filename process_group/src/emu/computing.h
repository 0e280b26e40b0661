#pragma once

#include <mutex>

#include "ranks/clock.h"

namespace gear::emu {

using process_group::Time;

/// How long a process has computed, and how long it has waited for operations: what is not the one
/// is the other. Any thread may call.
class Computing {
 public:
  struct Spent {
    double computed_s = 0;
    double waited_s = 0;
  };

  /// It begins an operation: until now it has computed.
  Spent arrive(Time now);
  /// It has waited for one.
  void wait(Time begin, Time end);
  /// One that is followed by a future, and arrived then, has ended. Who follows the last one that
  /// was begun waits for it, as DistributedDataParallel does.
  /// Returns from when on it has waited; `end`: not at all.
  Time end_followed(Time arrival, Time end);

 private:
  void compute_until(Time now);
  void wait_until(Time end);

  std::mutex mutex_;
  bool has_begun_ = false;
  Time accounted_;
  Time last_arrival_;
  Spent spent_;
};

/// How far the slowest copy of a process is behind it, in one group. It falls back while both
/// compute, and catches up while the process waits.
class Lag {
 public:
  /// The process has spent so much; the copy computes `factor` times as long.
  double at(const Computing::Spent& spent, double factor);

 private:
  double lag_s_ = 0;
  Computing::Spent before_;
};

}  // namespace gear::emu

#pragma once

#include <chrono>

namespace gear::process_group {

using Time = std::chrono::steady_clock::time_point;

/// What deadlines go by. Any thread may call.
class Clock {
 public:
  Clock() = default;
  virtual ~Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  virtual Time now() const noexcept = 0;
};

/// The one that never goes back.
class SteadyClock final : public Clock {
 public:
  Time now() const noexcept override { return std::chrono::steady_clock::now(); }
};

}  // namespace gear::process_group

#pragma once

#include <cstdint>
#include <vector>

namespace gear::emu {

/// An emulated member that is a copy of this process, and computes longer than it.
struct Copy {
  /// So many times as long, in this time of the job.
  struct Slow {
    double by;
    double from_s;
    double to_s;
  };

  uint64_t rank;     ///< of the world
  double sigma = 0;  ///< of the logarithm of another factor, whose mean is 1; one for each call
  std::vector<Slow> slow{};
};

/// By how much the last of them comes later than this process, as a part of what that has computed;
/// 0 where none does. It is the same for the same seed and call.
double lateness(const std::vector<Copy>& copies, double age_s, uint64_t seed, uint64_t call);

}  // namespace gear::emu

#include "emu/copies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/numbers/philox.h"

namespace gear::emu {
namespace {

// By Box and Muller.
double normal(const base::Draw128& bits) {
  const double radius = (static_cast<double>(bits.hi >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double angle = static_cast<double>(bits.lo >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(radius)) * std::cos(2 * std::numbers::pi * angle);
}

}  // namespace

double lateness(const std::vector<Copy>& copies, double age_s, uint64_t seed, uint64_t call) {
  double most = 1;
  for (const Copy& copy : copies) {
    double factor = 1;
    for (const Copy::Slow& slow : copy.slow) {
      if (age_s >= slow.from_s && age_s < slow.to_s) {
        factor *= slow.by;
      }
    }
    if (copy.sigma > 0) {
      const double drawn = normal(base::philox(seed, copy.rank, call));
      factor *= std::exp(copy.sigma * drawn - copy.sigma * copy.sigma / 2);
    }
    most = std::max(most, factor);
  }
  return most - 1;
}

}  // namespace gear::emu

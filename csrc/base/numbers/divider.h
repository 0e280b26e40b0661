#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace gear::base {

/// Division of 32-bit numbers by one that is known ahead, in a multiplication, an addition and a
/// shift; exact for all of them. Where a division by a variable costs a GPU some 20 instructions.
///
/// Granlund, Montgomery: Division by Invariant Integers using Multiplication (PLDI 1994).
class Divider {
 public:
  Divider() : Divider(1) {}

  /// `divisor` >= 1.
  explicit Divider(uint32_t divisor) : divisor_(divisor) {
    while ((uint64_t{1} << shift_) < divisor) {
      ++shift_;
    }
    const uint64_t excess = (uint64_t{1} << shift_) - divisor;
    multiplier_ = static_cast<uint32_t>((excess << 32) / divisor + 1);
  }

  GEAR_HD uint32_t divisor() const { return divisor_; }

  GEAR_HD uint32_t divide(uint32_t value) const {
    const uint64_t high = uint64_t{value} * multiplier_ >> 32;
    return static_cast<uint32_t>((high + value) >> shift_);
  }

  /// value - quotient * divisor.
  GEAR_HD uint32_t remainder(uint32_t value, uint32_t quotient) const {
    return value - quotient * divisor_;
  }

 private:
  uint32_t divisor_;
  uint32_t multiplier_;
  uint32_t shift_ = 0;
};

}  // namespace gear::base

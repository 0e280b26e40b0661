#pragma once

#include <cstdint>
#include <vector>

namespace gear::base {

/// What an operation of a group takes by its bytes, as gear.emu.Curve has it: linear in the bytes
/// between points, as the first below them, as steep as between the last two above them.
class Curve {
 public:
  // Numbers of gear.emu.BASES, of which there are so many.
  static constexpr int kMeasured = 0;
  static constexpr int kInterpolated = 2;
  static constexpr int kExtrapolated = 4;
  static constexpr int kNumBases = 5;

  /// One of nothing: no operation takes any time.
  Curve() = default;
  /// By ascending bytes, as many of each; `bases` are numbers of gear.emu.BASES.
  Curve(std::vector<uint64_t> bytes, std::vector<double> seconds, std::vector<int> bases);

  struct Reading {
    double seconds = 0;
    int basis = -1;  ///< -1: of no curve
  };
  Reading at(uint64_t bytes) const;

 private:
  std::vector<uint64_t> bytes_;
  std::vector<double> seconds_;
  std::vector<int> bases_;
};

}  // namespace gear::base

#pragma once

#include <cstdint>
#include <vector>

namespace gear::emu {

/// What an operation of a group takes by its bytes, as gear.emu.Curve has it: linear in the bytes
/// between points, as the first below them, as steep as between the last two above them.
class Curve {
 public:
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

// Numbers of gear.emu.BASES.
constexpr int kMeasured = 0;
constexpr int kInterpolated = 2;
constexpr int kExtrapolated = 4;

}  // namespace gear::emu

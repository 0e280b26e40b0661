#pragma once

#include <cstdint>
#include <span>

#include "store/index/sum_tree.h"

namespace gear::select {

/// What all ranks offer, laid end to end by rank: whose a target is. Cost: a search among `size`
/// running sums, one level of a tree for every factor of 16.
///
///   targets   0 ........ t0 ............... t0+t1 ... all()
///             rank 0     | rank 1           | ...
class RankRanges {
 public:
  RankRanges(uint32_t rank, uint32_t size);

  /// `totals`: what each rank offers. Throws InvalidArgument when they add up to 2^63 or more.
  void set(std::span<const uint64_t> totals);
  uint64_t all() const { return tree_.total(); }

  /// owners[i]: on whose range targets[i] falls. Of those that fall on this rank's, writes how far
  /// into the range to own[0], own[1], ..., which has room for all targets; returns how many they
  /// are. From any thread.
  size_t split(std::span<const uint64_t> targets, std::span<uint16_t> owners, uint64_t* own) const;

 private:
  uint32_t rank_;
  store::SumTree tree_;
};

}  // namespace gear::select

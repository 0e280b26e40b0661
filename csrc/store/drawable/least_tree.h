#pragma once

#include <cstdint>
#include <vector>

#include "store/drawable/sum_tree.h"

namespace gear::store {

/// The least weight above 0 of a SumTree: a tree of minima over its groups of 16 leaves.
/// Cost: 0.53 bytes a leaf; O(log leaves) a leaf that is set.
class LeastTree {
 public:
  /// O(leaves).
  explicit LeastTree(const SumTree& sums);

  /// 0: there is none.
  uint64_t least() const { return levels_.back()[0] + 1; }
  uint64_t bytes() const;

  /// The leaves [first, first + count) of `sums`, the same tree, were set.
  void look(const SumTree& sums, uint64_t first, uint64_t count);

 private:
  static constexpr uint64_t kFanout = SumTree::kFanout;

  // Of a weight 1 less, so that 0 is the largest: by group of 16 nodes of the level below.
  std::vector<std::vector<uint64_t>> levels_;
};

}  // namespace gear::store

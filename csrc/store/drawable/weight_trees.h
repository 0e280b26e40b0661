#pragma once

#include <memory>
#include <vector>

#include "store/index/sum_tree.h"

namespace gear::store {

/// Trees of fixed-point p^alpha, one for each alpha that somebody holds.
class WeightTrees {
 public:
  struct Tree {
    double alpha;
    SumTree sums;
  };

  uint64_t bytes() const;
  /// The tree of this alpha, or null.
  std::shared_ptr<Tree> find(double alpha) const;
  std::shared_ptr<Tree> make(double alpha, uint64_t num_leaves);
  /// Forgets the trees that nobody holds any more.
  void drop_unused();
  auto begin() const { return trees_.begin(); }
  auto end() const { return trees_.end(); }
  bool empty() const { return trees_.empty(); }

 private:
  std::vector<std::shared_ptr<Tree>> trees_;
};

}  // namespace gear::store

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "store/drawable/fixed_point.h"
#include "store/drawable/least_tree.h"
#include "store/drawable/sum_tree.h"

namespace gear::store {

/// Fixed-point p^alpha of a set of steps or episodes, by place; 0 for all else.
struct WeightTree {
  WeightScale scale;  ///< of the weights as they are
  SumTree sums;
  std::optional<LeastTree> least;  ///< of all of them, once somebody asked for it

  uint64_t bytes() const { return sums.bytes() + (least ? least->bytes() : 0); }
  // As SumTree.
  void set(uint64_t leaf, uint64_t weight);
  void set_each(std::span<const uint64_t> leaves, std::span<const uint64_t> weights);
  void set_run(uint64_t first, std::span<const uint64_t> weights);
};

/// One for each alpha that somebody holds.
class WeightTrees {
 public:
  uint64_t bytes() const;
  /// The tree of this alpha, or null.
  std::shared_ptr<WeightTree> find(double alpha) const;
  /// Of priorities up to `largest`.
  std::shared_ptr<WeightTree> make(double alpha, uint64_t num_leaves, float largest);
  /// Calls fill(tree), which sets every leaf, for those whose scale is another with this largest
  /// priority, and has become that.
  template <class Fill>
  void follow(float largest, Fill fill) {
    for (const auto& tree : trees_) {
      const WeightScale scale = weight_scale(largest, tree->scale.alpha, tree->scale.bits);
      if (scale != tree->scale) {
        tree->scale = scale;
        fill(*tree);
      }
    }
  }
  /// Forgets the trees that nobody holds any more.
  void drop_unused();
  auto begin() const { return trees_.begin(); }
  auto end() const { return trees_.end(); }
  bool empty() const { return trees_.empty(); }

 private:
  std::vector<std::shared_ptr<WeightTree>> trees_;
};

}  // namespace gear::store

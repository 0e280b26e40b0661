#include "store/drawable/weight_trees.h"

#include <algorithm>

namespace gear::store {

uint64_t WeightTrees::bytes() const {
  uint64_t total = 0;
  for (const auto& tree : trees_) {
    total += tree->sums.bytes();
  }
  return total;
}

std::shared_ptr<WeightTrees::Tree> WeightTrees::find(double alpha) const {
  const auto found = std::ranges::find_if(trees_, [&](const auto& t) { return t->alpha == alpha; });
  return found == trees_.end() ? nullptr : *found;
}

std::shared_ptr<WeightTrees::Tree> WeightTrees::make(double alpha, uint64_t num_leaves) {
  trees_.push_back(std::make_shared<Tree>(Tree{alpha, SumTree(num_leaves)}));
  return trees_.back();
}

void WeightTrees::drop_unused() {
  std::erase_if(trees_, [](const auto& tree) { return tree.use_count() == 1; });
}

}  // namespace gear::store

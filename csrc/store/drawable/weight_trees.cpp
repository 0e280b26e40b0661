#include "store/drawable/weight_trees.h"

#include <algorithm>

namespace gear::store {

void WeightTree::set(uint64_t leaf, uint64_t weight) {
  sums.set(leaf, weight);
  if (least) {
    least->look(sums, leaf, 1);
  }
}

void WeightTree::set_each(std::span<const uint64_t> leaves, std::span<const uint64_t> weights) {
  sums.set_each(leaves, weights);
  for (size_t i = 0; i < leaves.size() && least; ++i) {
    least->look(sums, leaves[i], 1);
  }
}

void WeightTree::set_run(uint64_t first, std::span<const uint64_t> weights) {
  sums.set_run(first, weights);
  if (least) {
    least->look(sums, first, weights.size());
  }
}

uint64_t WeightTrees::bytes() const {
  uint64_t total = 0;
  for (const auto& tree : trees_) {
    total += tree->bytes();
  }
  return total;
}

std::shared_ptr<WeightTree> WeightTrees::find(double alpha) const {
  const auto found =
      std::ranges::find_if(trees_, [&](const auto& tree) { return tree->scale.alpha == alpha; });
  return found == trees_.end() ? nullptr : *found;
}

std::shared_ptr<WeightTree> WeightTrees::make(double alpha, uint64_t num_leaves, float largest) {
  trees_.push_back(std::make_shared<WeightTree>(
      WeightTree{weight_scale(largest, alpha, weight_bits(num_leaves)), SumTree(num_leaves), {}}));
  return trees_.back();
}

void WeightTrees::drop_unused() {
  std::erase_if(trees_, [](const auto& tree) { return tree.use_count() == 1; });
}

}  // namespace gear::store

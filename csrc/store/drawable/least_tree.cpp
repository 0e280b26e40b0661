#include "store/drawable/least_tree.h"

#include <algorithm>

namespace gear::store {

LeastTree::LeastTree(const SumTree& sums) {
  uint64_t nodes = sums.num_leaves();
  do {
    nodes = (nodes + kFanout - 1) / kFanout;
    levels_.emplace_back(nodes);
  } while (nodes > 1);
  look(sums, 0, sums.num_leaves());
}

uint64_t LeastTree::bytes() const {
  uint64_t total = 0;
  for (const auto& level : levels_) {
    total += level.size() * sizeof(uint64_t);
  }
  return total;
}

void LeastTree::look(const SumTree& sums, uint64_t first, uint64_t count) {
  if (count == 0) {
    return;
  }
  uint64_t begin = first / kFanout;
  uint64_t end = (first + count - 1) / kFanout + 1;
  for (uint64_t group = begin; group < end; ++group) {
    const uint64_t stop = std::min((group + 1) * kFanout, sums.num_leaves());
    uint64_t least = UINT64_MAX;
    for (uint64_t leaf = group * kFanout; leaf < stop; ++leaf) {
      least = std::min(least, sums[leaf] - 1);
    }
    levels_[0][group] = least;
  }
  for (size_t level = 1; level < levels_.size(); ++level) {
    const std::vector<uint64_t>& below = levels_[level - 1];
    begin /= kFanout;
    end = (end - 1) / kFanout + 1;
    for (uint64_t node = begin; node < end; ++node) {
      const auto children = below.begin() + static_cast<ptrdiff_t>(node * kFanout);
      const uint64_t some = std::min(kFanout, below.size() - node * kFanout);
      levels_[level][node] = *std::min_element(children, children + static_cast<ptrdiff_t>(some));
    }
  }
}

}  // namespace gear::store

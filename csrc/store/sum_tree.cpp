#include "store/sum_tree.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::store {
namespace {

constexpr uint64_t kGroup = 16;  // targets that descend together

// The child on which `target` falls, of four with weights c; takes the weights
// before it off the target. Comparisons in place of branches: a search is unpredictable.
uint64_t choose_of_four(const uint64_t* c, uint64_t& target) {
  const uint64_t first = c[0];
  const uint64_t second = first + c[1];
  const uint64_t third = second + c[2];
  const uint64_t past_first = target >= first;
  const uint64_t past_second = target >= second;
  const uint64_t past_third = target >= third;
  target -= (c[0] & -past_first) + (c[1] & -past_second) + (c[2] & -past_third);
  return past_first + past_second + past_third;
}

uint64_t descend(const uint64_t* child, uint64_t& target) {
  const uint64_t fours[3] = {child[0] + child[1] + child[2] + child[3],
                             child[4] + child[5] + child[6] + child[7],
                             child[8] + child[9] + child[10] + child[11]};
  const uint64_t four = choose_of_four(fours, target);
  return 4 * four + choose_of_four(child + 4 * four, target);
}

}  // namespace

SumTree::SumTree(uint64_t num_leaves) : num_leaves_(num_leaves) {
  GEAR_CHECK(num_leaves > 0);
  uint64_t begin = 0;
  for (uint64_t count = num_leaves;; count = (count + kFanout - 1) / kFanout) {
    level_begin_.push_back(begin);
    begin += (count + kFanout - 1) / kFanout * kFanout;
    if (count <= kFanout) break;
  }
  nodes_.resize(begin, 0);
}

void SumTree::set(uint64_t leaf, uint64_t weight) {
  uint64_t& slot = nodes_[level_begin_[0] + leaf];
  const uint64_t delta = weight - slot;  // modulo 2^64, as are the sums
  if (delta == 0) return;
  slot = weight;
  total_ += delta;
  for (size_t level = 1; level < level_begin_.size(); ++level) {
    leaf /= kFanout;
    nodes_[level_begin_[level] + leaf] += delta;
  }
}

void SumTree::set_run(uint64_t first, std::span<const uint64_t> weights) {
  uint64_t done = 0;
  while (done < weights.size()) {
    uint64_t node = (first + done) / kFanout;
    const uint64_t stop = std::min<uint64_t>(weights.size(), (node + 1) * kFanout - first);
    uint64_t delta = 0;
    for (; done < stop; ++done) {
      uint64_t& slot = nodes_[level_begin_[0] + first + done];
      delta += weights[done] - slot;
      slot = weights[done];
    }
    if (delta == 0) continue;
    total_ += delta;
    for (size_t level = 1; level < level_begin_.size(); ++level, node /= kFanout) {
      nodes_[level_begin_[level] + node] += delta;
    }
  }
}

void SumTree::find(std::span<const uint64_t> targets, std::span<Hit> hits) const {
  GEAR_CHECK(targets.size() == hits.size());
  for (size_t begin = 0; begin < targets.size(); begin += kGroup) {
    const size_t count = std::min<size_t>(kGroup, targets.size() - begin);
    Hit* group = hits.data() + begin;
    for (size_t i = 0; i < count; ++i) group[i] = {0, targets[begin + i]};
    for (size_t level = level_begin_.size(); level-- > 0;) {
      const uint64_t* nodes = nodes_.data() + level_begin_[level];
      for (size_t i = 0; i < count; ++i) {
        const uint64_t* child = nodes + group[i].leaf * kFanout;
        uint64_t remainder = group[i].remainder;
        const uint64_t k = descend(child, remainder);
        const uint64_t next = group[i].leaf * kFanout + k;
        group[i] = {next, remainder};
        if (level > 0) {
          const uint64_t* below = nodes_.data() + level_begin_[level - 1] + next * kFanout;
          __builtin_prefetch(below);
          __builtin_prefetch(below + kFanout / 2);
        }
      }
    }
  }
}

}  // namespace gear::store

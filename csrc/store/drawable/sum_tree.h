#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/large_vector.h"

namespace gear::store {

/// Sum of N unsigned 64-bit weights with exact updates and exact search: a tree of fan-out 16 in
/// which every node holds the running sums of its children, so that a search compares its target
/// with 16 numbers in two neighbouring cache lines and counts, without a branch.
///
///   level 0   w0, w0+w1, ..., w0+...+w15 | w16, w16+w17, ... | ...
///   level 1   s0, s0+s1, ...                                   s_i: sum of the i-th group below
///   ...       until one group is left; its last number is total()
///
/// Integer sums do not depend on the order of updates, so this tree, another implementation of it
/// and a sum over ranks agree to the bit. The caller keeps the total below 2^63.
/// Cost: update and search touch one group per level: 5 levels at 1e6 leaves, 7 at 2.6e8.
/// Not thread safe: the shard's lock covers it.
class SumTree {
 public:
  static constexpr uint64_t kFanout = 16;

  explicit SumTree(uint64_t num_leaves);

  uint64_t num_leaves() const { return num_leaves_; }
  uint64_t total() const { return static_cast<uint64_t>(nodes_.back()); }
  uint64_t bytes() const { return nodes_.size() * sizeof(int64_t); }

  uint64_t operator[](uint64_t leaf) const {
    const int64_t before = leaf % kFanout == 0 ? 0 : nodes_[leaf - 1];
    return static_cast<uint64_t>(nodes_[leaf] - before);
  }

  void set(uint64_t leaf, uint64_t weight);
  /// Asks for what set() looks at, of the two levels that are large.
  void prefetch(uint64_t leaf) const;

  /// Sets leaves one by one: of one that is named twice, the last weight counts.
  void set_each(std::span<const uint64_t> leaves, std::span<const uint64_t> weights);

  /// Sets the leaves [first, first + weights.size()): one pass up the tree for each group of 16.
  void set_run(uint64_t first, std::span<const uint64_t> weights);

  /// The leaf on which a target falls when the weights are laid end to end in leaf order, and how
  /// far into that leaf it falls.
  struct Hit {
    uint64_t leaf;
    uint64_t remainder;  ///< in [0, weight of the leaf)
  };

  /// Resolves many targets, each in [0, total()); descends level by level over small groups of
  /// targets so that their cache misses overlap.
  void find(std::span<const uint64_t> targets, std::span<Hit> hits) const;

 private:
  // Adds to the weight of one child of every level from `level` up; `node` counts at that level.
  void add(size_t level, uint64_t node, int64_t delta);

  uint64_t num_leaves_;
  std::vector<uint64_t> level_begin_;   // index of each level's first node in nodes_, leaves first
  memory::LargeVector<int64_t> nodes_;  // signed: a signed comparison is one instruction
};

}  // namespace gear::store

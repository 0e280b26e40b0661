#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gear::store {

// Sum of N unsigned 64-bit weights with exact updates and exact search: a tree of fan-out 16 in
// one array, so that the 16 sums a search compares are two neighbouring cache lines.
//
//   level 0   w0 w1 ... w15 | w16 ... w31 | ...          the leaves, padded with zeros
//   level 1   sum(w0..w15)    sum(w16..w31) ...
//   ...       until one group of 16 is left; total() is the sum of that group
//
// Integer sums do not depend on the order of updates, so this tree, another implementation of it
// and a sum over ranks agree to the bit. The caller keeps the total below 2^64.
// Cost: update and search touch one group per level: 5 levels at 1e6 leaves, 7 at 2.6e8.
// Not thread safe: the shard's lock covers it.
class SumTree {
 public:
  static constexpr uint64_t kFanout = 16;

  explicit SumTree(uint64_t num_leaves);

  uint64_t num_leaves() const { return num_leaves_; }
  uint64_t total() const { return total_; }
  uint64_t bytes() const { return nodes_.size() * sizeof(uint64_t); }
  uint64_t operator[](uint64_t leaf) const { return leaves()[leaf]; }

  void set(uint64_t leaf, uint64_t weight);

  // Sets the leaves [first, first + weights.size()): one pass up the tree for the whole run.
  void set_run(uint64_t first, std::span<const uint64_t> weights);

  // The leaf on which a target falls when the weights are laid end to end in leaf order, and how
  // far into that leaf it falls.
  struct Hit {
    uint64_t leaf;
    uint64_t remainder;  // in [0, weight of the leaf)
  };

  // Resolves many targets, each in [0, total()); descends level by level over small groups of
  // targets so that their cache misses overlap.
  void find(std::span<const uint64_t> targets, std::span<Hit> hits) const;

  // Hints that leaf and its ancestors will be set soon.
  void prefetch(uint64_t leaf) const { __builtin_prefetch(&leaves()[leaf], 1); }

 private:
  const uint64_t* leaves() const { return nodes_.data() + level_begin_[0]; }

  uint64_t num_leaves_;
  uint64_t total_ = 0;
  std::vector<uint64_t> level_begin_;  // index of each level's first node in nodes_, leaves first
  std::vector<uint64_t> nodes_;
};

}  // namespace gear::store

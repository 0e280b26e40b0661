#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gear::transport {

/// Which ranks are on which node, as all of them know. Nodes are numbered by their heads: the node
/// of rank 0 is 0.
class NodePlaces {
 public:
  /// `nodes`: of every rank, any numbers.
  explicit NodePlaces(std::span<const uint32_t> nodes);

  uint32_t num_nodes() const { return static_cast<uint32_t>(heads_.size()); }
  /// The lowest rank of each node, ascending.
  std::span<const uint32_t> heads() const { return heads_; }
  /// Ascending.
  std::span<const uint32_t> ranks_of(uint32_t node) const { return ranks_[node]; }
  uint32_t node_of(uint32_t rank) const { return node_of_[rank]; }
  /// In ranks_of its node.
  uint32_t place_of(uint32_t rank) const { return place_of_[rank]; }
  /// Ranks of the largest node.
  uint32_t widest() const { return widest_; }
  /// Whether rank r is the (r mod widest)-th of node r / widest.
  bool in_order() const { return in_order_; }

 private:
  std::vector<uint32_t> heads_;
  std::vector<std::vector<uint32_t>> ranks_;
  std::vector<uint32_t> node_of_;
  std::vector<uint32_t> place_of_;
  uint32_t widest_ = 0;
  bool in_order_ = true;
};

}  // namespace gear::transport

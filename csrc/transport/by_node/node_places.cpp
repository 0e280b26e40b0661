#include "transport/by_node/node_places.h"

#include <algorithm>
#include <map>

namespace gear::transport {

NodePlaces::NodePlaces(std::span<const uint32_t> nodes) {
  std::map<uint32_t, uint32_t> numbers;
  for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(nodes[rank], num_nodes());
    if (is_new) {
      heads_.push_back(rank);
      ranks_.emplace_back();
    }
    std::vector<uint32_t>& its = ranks_[found->second];
    node_of_.push_back(found->second);
    place_of_.push_back(static_cast<uint32_t>(its.size()));
    its.push_back(rank);
    widest_ = std::max(widest_, static_cast<uint32_t>(its.size()));
  }
  for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
    in_order_ = in_order_ && rank == node_of_[rank] * widest_ + place_of_[rank];
  }
}

}  // namespace gear::transport

#include "collect/assignment.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::collect {
namespace {

constexpr uint16_t kNobody = UINT16_MAX;

}  // namespace

Locality parse_locality(std::string_view text) {
  if (text == "first") return Locality::kFirst;
  if (text == "off") return Locality::kOff;
  throw base::InvalidArgument(
      base::cat("[collect] locality '", text, "': 'first' or 'off' is allowed"));
}

Assignment::Assignment(std::vector<uint32_t> nodes, Locality locality)
    : nodes_(std::move(nodes)), locality_(locality), spare_(nodes_.size()), next_(nodes_.size()) {
  GEAR_CHECK(!nodes_.empty() && nodes_.size() < kNobody);
  ranks_of_.resize(*std::max_element(nodes_.begin(), nodes_.end()) + size_t{1});
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    ranks_of_[nodes_[rank]].ranks.push_back(static_cast<uint16_t>(rank));
    everybody_.ranks.push_back(static_cast<uint16_t>(rank));
  }
}

uint64_t Assignment::share(uint32_t rank) const {
  return consumers_.size() / num_ranks() + (rank < consumers_.size() % num_ranks() ? 1 : 0);
}

void Assignment::assign(std::span<const uint16_t> owners) {
  consumers_.resize(owners.size());
  places_.resize(owners.size());
  if (locality_ == Locality::kOff) {
    assign_in_order();
    return;
  }
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    spare_[rank] = static_cast<uint32_t>(share(rank));
  }
  std::fill(next_.begin(), next_.end(), 0);
  assign_locally(owners);
  for (size_t draw = 0; draw < owners.size(); ++draw) {
    places_[draw] = next_[consumers_[draw]]++;
  }
}

void Assignment::assign_in_order() {
  size_t first = 0;
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    const size_t items = share(rank);
    std::fill_n(consumers_.data() + first, items, static_cast<uint16_t>(rank));
    for (size_t i = 0; i < items; ++i) places_[first + i] = static_cast<uint32_t>(i);
    first += items;
  }
}

void Assignment::assign_locally(std::span<const uint16_t> owners) {
  surplus_.clear();
  for (size_t draw = 0; draw < owners.size(); ++draw) {
    const uint16_t owner = owners[draw];
    if (spare_[owner] > 0) {
      --spare_[owner];
      consumers_[draw] = owner;
    } else {
      surplus_.push_back(static_cast<uint32_t>(draw));
    }
  }
  for (Takers& node : ranks_of_) node.first = 0;
  everybody_.first = 0;
  for (const uint32_t draw : surplus_) consumers_[draw] = take(ranks_of_[nodes_[owners[draw]]]);
  for (const uint32_t draw : surplus_) {
    if (consumers_[draw] == kNobody) consumers_[draw] = take(everybody_);
  }
}

uint16_t Assignment::take(Takers& takers) {
  while (takers.first < takers.ranks.size() && spare_[takers.ranks[takers.first]] == 0) {
    ++takers.first;
  }
  if (takers.first == takers.ranks.size()) return kNobody;
  const uint16_t rank = takers.ranks[takers.first];
  --spare_[rank];
  return rank;
}

}  // namespace gear::collect

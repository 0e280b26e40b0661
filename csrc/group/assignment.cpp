#include "group/assignment.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::group {
namespace {

constexpr uint16_t kNobody = UINT16_MAX;

}  // namespace

Locality parse_locality(std::string_view text) {
  if (text == "first") {
    return Locality::kFirst;
  }
  if (text == "off") {
    return Locality::kOff;
  }
  throw base::InvalidArgument(
      base::cat("[collect] locality '", text, "': 'first' or 'off' is allowed"));
}

Assignment::Assignment(std::vector<uint32_t> nodes, Locality locality, uint64_t part_draws)
    : nodes_(std::move(nodes)),
      locality_(locality),
      numbering_(nodes_.size(), part_draws),
      lacks_(nodes_.size()) {
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
  GEAR_CHECK(owners.size() <= UINT32_MAX);  // places and surplus are of 32 bits
  consumers_.resize(owners.size());
  places_.resize(owners.size());
  if (locality_ == Locality::kOff) {
    assign_in_order();
    return;
  }
  keep_shares(owners);
  give_surplus(owners);
  numbering_.number(
      owners.size(), [consumers = consumers_.data()](uint64_t draw) { return consumers[draw]; },
      [places = places_.data()](size_t, uint64_t draw, uint32_t place) { places[draw] = place; });
}

void Assignment::assign_in_order() {
  size_t first = 0;
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    const size_t items = share(rank);
    std::fill_n(consumers_.data() + first, items, static_cast<uint16_t>(rank));
    for (size_t i = 0; i < items; ++i) {
      places_[first + i] = static_cast<uint32_t>(i);
    }
    first += items;
  }
}

// A rank keeps what it draws up to its share; what it draws beyond is surplus.
void Assignment::keep_shares(std::span<const uint16_t> owners) {
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    lacks_[rank] = static_cast<uint32_t>(share(rank));
  }
  surplus_.resize(numbering_.num_parts(owners.size()));
  for (std::vector<uint32_t>& part : surplus_) {
    part.clear();
  }
  const std::span<const uint32_t> drawn = numbering_.number(
      owners.size(), [whose = owners.data()](uint64_t draw) { return whose[draw]; },
      [whose = owners.data(), consumers = consumers_.data(), surplus = surplus_.data(),
       shares = lacks_.data()](size_t part, uint64_t draw, uint32_t drawn_before) {
        const uint16_t owner = whose[draw];
        consumers[draw] = owner;
        if (drawn_before >= shares[owner]) {
          surplus[part].push_back(static_cast<uint32_t>(draw));
        }
      });
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    lacks_[rank] -= std::min(lacks_[rank], drawn[rank]);
  }
}

// To ranks of the owner's node as long as one lacks something; then what is left to others.
void Assignment::give_surplus(std::span<const uint16_t> owners) {
  for (Takers& node : ranks_of_) {
    node.first = 0;
  }
  everybody_.first = 0;
  left_.clear();
  for (const std::vector<uint32_t>& part : surplus_) {
    for (const uint32_t draw : part) {
      consumers_[draw] = take(ranks_of_[nodes_[owners[draw]]]);
      if (consumers_[draw] == kNobody) {
        left_.push_back(draw);
      }
    }
  }
  for (const uint32_t draw : left_) {
    consumers_[draw] = take(everybody_);
  }
}

uint16_t Assignment::take(Takers& takers) {
  while (takers.first < takers.ranks.size() && lacks_[takers.ranks[takers.first]] == 0) {
    ++takers.first;
  }
  if (takers.first == takers.ranks.size()) {
    return kNobody;
  }
  const uint16_t rank = takers.ranks[takers.first];
  --lacks_[rank];
  return rank;
}

}  // namespace gear::group

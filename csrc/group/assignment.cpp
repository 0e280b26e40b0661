#include "group/assignment.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::group {
namespace {

constexpr uint16_t kNobody = UINT16_MAX;
constexpr uint64_t kMostParts = 256;
constexpr uint64_t kApart = 32;  // counters of two parts never share a cache line

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
      part_draws_(part_draws),
      pool_(base::ThreadPool::shared()),
      shares_(nodes_.size()),
      spare_(nodes_.size()) {
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
  assign_locally(owners);
  number(consumers_,
         [places = places_.data()](size_t, size_t draw, uint32_t place) { places[draw] = place; });
}

template <class Visit>
void Assignment::number(std::span<const uint16_t> ranks, const Visit& visit) {
  const size_t parts = num_parts();
  const size_t part_draws = (ranks.size() + parts - 1) / parts;
  const size_t stride = std::max<size_t>(num_ranks(), kApart);
  const auto draws_of = [&](size_t part) {
    const size_t begin = std::min(part * part_draws, ranks.size());
    return ranks.subspan(begin, std::min(part_draws, ranks.size() - begin));
  };
  counts_.assign(parts * stride, 0);
  uint32_t* const counts = counts_.data();
  pool_.parallel_for(parts - 1, [&](size_t part) {
    uint32_t* const next = counts + (part + 1) * stride;
    for (const uint16_t rank : draws_of(part)) {
      ++next[rank];
    }
  });
  for (size_t i = stride; i < counts_.size(); ++i) {
    counts[i] += counts[i - stride];
  }
  pool_.parallel_for(parts, [&](size_t part) {
    uint32_t* const before = counts + part * stride;
    size_t draw = part * part_draws;
    for (const uint16_t rank : draws_of(part)) {
      visit(part, draw++, before[rank]++);
    }
  });
}

size_t Assignment::num_parts() const {
  if (pool_.size() == 1) {
    return 1;
  }
  return std::clamp<uint64_t>(consumers_.size() / part_draws_, 1, kMostParts);
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

void Assignment::assign_locally(std::span<const uint16_t> owners) {
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    shares_[rank] = spare_[rank] = static_cast<uint32_t>(share(rank));
  }
  surplus_of_.resize(num_parts());
  for (auto& surplus : surplus_of_) {
    surplus.clear();
  }
  number(owners, [this, owner_of = owners.data(), consumers = consumers_.data(),
                  shares = shares_.data()](size_t part, size_t draw, uint32_t drawn) {
    const uint16_t owner = owner_of[draw];
    consumers[draw] = owner;
    if (drawn >= shares[owner]) {
      surplus_of_[part].push_back(static_cast<uint32_t>(draw));
    }
  });
  const uint32_t* const drawn = counts_.data() + counts_.size() - counts_.size() / num_parts();
  for (uint32_t rank = 0; rank < num_ranks(); ++rank) {
    spare_[rank] -= std::min(spare_[rank], drawn[rank]);
  }
  surplus_.clear();
  for (const auto& surplus : surplus_of_) {
    surplus_.insert(surplus_.end(), surplus.begin(), surplus.end());
  }
  for (Takers& node : ranks_of_) {
    node.first = 0;
  }
  everybody_.first = 0;
  for (const uint32_t draw : surplus_) {
    consumers_[draw] = take(ranks_of_[nodes_[owners[draw]]]);
  }
  for (const uint32_t draw : surplus_) {
    if (consumers_[draw] == kNobody) {
      consumers_[draw] = take(everybody_);
    }
  }
}

uint16_t Assignment::take(Takers& takers) {
  while (takers.first < takers.ranks.size() && spare_[takers.ranks[takers.first]] == 0) {
    ++takers.first;
  }
  if (takers.first == takers.ranks.size()) {
    return kNobody;
  }
  const uint16_t rank = takers.ranks[takers.first];
  --spare_[rank];
  return rank;
}

}  // namespace gear::group

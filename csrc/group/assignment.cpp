#include "group/assignment.h"

#include <algorithm>
#include <numeric>

#include "base/errors.h"

namespace gear::group {

uint64_t items_of_all(uint64_t batch_size, uint32_t ranks) {
  if (batch_size > UINT32_MAX / ranks) {
    throw base::InvalidArgument(base::cat(
        "[loader] batch_size ", batch_size, " on each of ", ranks, " ranks: all together draw ",
        UINT32_MAX, " items at most; lower batch_size to ", UINT32_MAX / ranks, " or less"));
  }
  return batch_size * ranks;
}

Assignment::Assignment(std::vector<uint32_t> nodes)
    : nodes_(std::move(nodes)), parts_(nodes_.size()) {
  GEAR_CHECK(!nodes_.empty());
  const size_t num_nodes = *std::ranges::max_element(nodes_) + size_t{1};
  surplus_.resize(num_nodes);
  lack_.resize(num_nodes);
}

std::span<const AssignedRun> Assignment::runs(std::span<const uint64_t> counts, uint32_t owner) {
  GEAR_CHECK(counts.size() == nodes_.size());
  divide(counts);
  runs_.clear();
  const Part& own = parts_[owner];
  if (own.kept > 0) {
    runs_.push_back({owner, 0, 0, static_cast<uint32_t>(own.kept)});
  }
  if (own.surplus.size == 0) {
    return runs_;
  }
  const auto ranks = static_cast<uint32_t>(nodes_.size());
  for (uint32_t c = 0; c < ranks; ++c) {
    if (nodes_[c] == nodes_[owner]) {
      meet(c, own.surplus, own.kept, parts_[c].lack, parts_[c].kept);
    }
  }
  const uint64_t first = own.kept + own.surplus.size - own.left_surplus.size;
  for (uint32_t c = 0; c < ranks; ++c) {
    const Part& part = parts_[c];
    meet(c, own.left_surplus, first, part.left_lack,
         part.kept + part.lack.size - part.left_lack.size);
  }
  return runs_;
}

void Assignment::sources(std::span<const uint64_t> counts, uint32_t consumer,
                         std::vector<uint8_t>& out) {
  divide(counts);
  out.assign(nodes_.size(), 0);
  const auto overlap = [](const Stretch& one, const Stretch& other) {
    return std::max(one.begin, other.begin) <
           std::min(one.begin + one.size, other.begin + other.size);
  };
  const Part& own = parts_[consumer];
  for (size_t o = 0; o < nodes_.size(); ++o) {
    const Part& part = parts_[o];
    out[o] = (nodes_[o] == nodes_[consumer] && overlap(part.surplus, own.lack)) ||
                     overlap(part.left_surplus, own.left_lack)
                 ? 1
                 : 0;
  }
  out[consumer] = own.kept > 0 ? 1 : 0;
}

void Assignment::divide(std::span<const uint64_t> counts) {
  const uint64_t items = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  GEAR_CHECK(items <= UINT32_MAX);  // draws and places are of 32 bits
  const auto ranks = static_cast<uint32_t>(nodes_.size());
  std::ranges::fill(surplus_, Stretch{});
  std::ranges::fill(lack_, Stretch{});
  const auto add = [](Stretch& all, uint64_t size) {
    const Stretch one{all.size, size};
    all.size += size;
    return one;
  };
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint64_t share = share_of(items, ranks, r);
    Part& part = parts_[r];
    part.kept = std::min(counts[r], share);
    part.surplus = add(surplus_[nodes_[r]], counts[r] - part.kept);
    part.lack = add(lack_[nodes_[r]], share - part.kept);
  }
  Stretch left_surplus;
  Stretch left_lack;
  const auto beyond = [](const Stretch& one, uint64_t met) {
    return one.begin + one.size - std::clamp(met, one.begin, one.begin + one.size);
  };
  for (uint32_t r = 0; r < ranks; ++r) {
    Part& part = parts_[r];
    part.left_surplus = add(left_surplus, beyond(part.surplus, lack_[nodes_[r]].size));
    part.left_lack = add(left_lack, beyond(part.lack, surplus_[nodes_[r]].size));
  }
}

// `first`: of the surplus among the owner's draws; `place`: of the lack in the consumer's batch.
void Assignment::meet(uint32_t consumer, Stretch surplus, uint64_t first, Stretch lack,
                      uint64_t place) {
  const uint64_t begin = std::max(surplus.begin, lack.begin);
  const uint64_t end = std::min(surplus.begin + surplus.size, lack.begin + lack.size);
  if (begin < end) {
    runs_.push_back({consumer, static_cast<uint32_t>(first + begin - surplus.begin),
                     static_cast<uint32_t>(place + begin - lack.begin),
                     static_cast<uint32_t>(end - begin)});
  }
}

Deal::Deal(const std::vector<uint32_t>& nodes, uint32_t rank, Locality locality)
    : assignment_(nodes),
      rank_(rank),
      locality_(locality),
      which_(nodes.size()),
      places_(nodes.size()) {}

void Deal::deal(const select::GroupDraw& draw) {
  for (size_t c = 0; c < which_.size(); ++c) {
    which_[c].clear();
    places_[c].clear();
  }
  sources_.resize(which_.size());
  targets_.resize(which_.size());
  if (by_number()) {
    deal_by_number(draw);
  } else {
    deal_by_counts(draw);
  }
}

void Deal::deal_by_counts(const select::GroupDraw& draw) {
  for (const AssignedRun& run : assignment_.runs(draw.counts, rank_)) {
    for (uint32_t i = 0; i < run.count; ++i) {
      give(run.consumer, run.first + i, run.place + i);
    }
  }
  for (size_t c = 0; c < which_.size(); ++c) {
    targets_[c] = which_[c].empty() ? 0 : 1;
  }
  assignment_.sources(draw.counts, rank_, sources_);
}

// Draws go to the ranks in their order.
void Deal::deal_by_number(const select::GroupDraw& draw) {
  const auto ranks = static_cast<uint32_t>(which_.size());
  uint32_t consumer = 0;
  uint64_t begin = 0;  // of its batch
  uint64_t share = share_of(draw.items, ranks, consumer);
  for (uint32_t i = 0; i < draw.own_draws.size(); ++i) {
    while (draw.own_draws[i] >= begin + share) {
      begin += share;
      share = share_of(draw.items, ranks, ++consumer);
    }
    give(consumer, i, static_cast<uint32_t>(draw.own_draws[i] - begin));
  }
  // Counts do not tell whose draws a consumer's numbers are: who has any sends to each.
  for (size_t o = 0; o < which_.size(); ++o) {
    sources_[o] = draw.counts[o] > 0 ? 1 : 0;
  }
  std::ranges::fill(targets_, draw.counts[rank_] > 0 ? uint8_t{1} : uint8_t{0});
}

void Deal::give(uint32_t consumer, uint32_t own, uint32_t place) {
  which_[consumer].push_back(own);
  places_[consumer].push_back(place);
}

}  // namespace gear::group

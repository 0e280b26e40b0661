#include "group/pull/published_masses.h"

#include <algorithm>

namespace gear::group {
namespace {

using store::PublishedLayout;
constexpr uint64_t kFanout = PublishedLayout::kFanout;

// `rest` of [0, before) as a part of [0, now).
uint64_t scaled(uint64_t rest, uint64_t before, uint64_t now) {
  __extension__ using Wide = unsigned __int128;
  return before == now ? rest : static_cast<uint64_t>(static_cast<Wide>(rest) * now / before);
}

}  // namespace

PublishedMasses::PublishedMasses(PublishedShards& shards) : shards_(shards) {
  begins_.push_back(0);
  for (uint32_t owner = 0; owner < shards.size(); ++owner) {
    begins_.push_back(begins_.back() + shards.layout(owner).top().count);
  }
  tops_.resize(begins_.back());
}

uint64_t PublishedMasses::look() {
  reads_.clear();
  for (uint32_t owner = 0; owner < shards_.size(); ++owner) {
    const PublishedLayout::Level& top = shards_.layout(owner).top();
    reads_.push_back({owner, top.begin, top.count * sizeof(uint64_t),
                      reinterpret_cast<std::byte*>(&tops_[begins_[owner]])});
  }
  shards_.read(PublishedShards::Part::kIndex, reads_);
  uint64_t sum = 0;
  for (uint64_t& mass : tops_) {
    mass = sum += mass;
  }
  return sum;
}

void PublishedMasses::find(std::span<const uint64_t> targets, std::span<PublishedPlace> places) {
  descents_.clear();
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto top = static_cast<uint64_t>(
        std::upper_bound(tops_.begin(), tops_.end(), targets[i]) - tops_.begin());
    const auto owner = static_cast<uint32_t>(std::upper_bound(begins_.begin(), begins_.end(), top) -
                                             begins_.begin() - 1);
    const uint64_t before = top == 0 ? 0 : tops_[top - 1];
    places[i] = {owner, store::kNone, 0};
    descents_.push_back({shards_.layout(owner).levels.size() - 1, top - begins_[owner],
                         targets[i] - before, tops_[top] - before});
  }
  masses_.resize(targets.size() * kFanout);
  const auto below = [](const Descent& one) { return one.level > 0 && one.mass > 0; };
  while (std::ranges::any_of(descents_, below)) {
    reads_.clear();
    for (size_t i = 0; i < descents_.size(); ++i) {
      const Descent& one = descents_[i];
      if (!below(one)) {
        continue;
      }
      const PublishedLayout::Level& level = shards_.layout(places[i].owner).levels[one.level - 1];
      const uint64_t first = one.node * kFanout;
      std::fill_n(&masses_[i * kFanout], kFanout, 0);
      reads_.push_back({places[i].owner, level.begin + first * sizeof(uint64_t),
                        std::min(kFanout, level.count - first) * sizeof(uint64_t),
                        reinterpret_cast<std::byte*>(&masses_[i * kFanout])});
    }
    shards_.read(PublishedShards::Part::kIndex, reads_);
    for (size_t i = 0; i < descents_.size(); ++i) {
      Descent& one = descents_[i];
      if (!below(one)) {
        continue;
      }
      const std::span<const uint64_t> group(&masses_[i * kFanout], kFanout);
      uint64_t sum = 0;
      for (const uint64_t mass : group) {
        sum += mass;
      }
      uint64_t rest = scaled(one.rest, one.mass, sum);
      uint64_t child = 0;
      while (child + 1 < kFanout && rest >= group[child]) {
        rest -= group[child++];
      }
      one = {one.level - 1, one.node * kFanout + child, rest, sum == 0 ? 0 : group[child]};
    }
  }
  for (size_t i = 0; i < descents_.size(); ++i) {
    if (descents_[i].mass > 0) {
      places[i].page = static_cast<uint32_t>(descents_[i].node);
      places[i].nth = descents_[i].rest;
    }
  }
}

}  // namespace gear::group

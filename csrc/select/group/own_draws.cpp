#include "select/group/own_draws.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/errors.h"

namespace gear::select {

OwnDraws::OwnDraws(uint32_t rank) : rank_(rank), pool_(base::ThreadPool::shared()) {}

void OwnDraws::set_offers(std::span<const RankTotal> offers) {
  GEAR_CHECK(rank_ < offers.size());
  const auto ranks = static_cast<uint32_t>(offers.size());
  const int32_t shift = common_shift(ranks, [&](uint32_t r) { return offers[r]; });
  all_ = 0;
  for (uint32_t r = 0; r < ranks; ++r) {
    if (r == rank_) {
      begin_ = all_;
    }
    all_ += offers[r].total > 0 ? in_units(offers[r], shift) : 0;
  }
  const RankTotal& own = offers[rank_];
  places_ = own.total;
  size_ = places_ > 0 ? in_units(own, shift) : 0;
  all_here_ = std::ldexp(static_cast<double>(all_), places_ > 0 ? own.shift - shift : 0);
}

void OwnDraws::divide(std::span<const uint32_t> numbers, std::span<const uint64_t> offsets) {
  parts_.resize((numbers.size() + kPartDraws - 1) / kPartDraws);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const size_t first = p * kPartDraws;
    const size_t some = std::min(kPartDraws, numbers.size() - first);
    const auto draws = numbers.subspan(first, some);
    const auto targets = offsets.subspan(first, some);
    parts_[p].draws.assign(draws.begin(), draws.end());
    parts_[p].targets.assign(targets.begin(), targets.end());
  }
}

void OwnDraws::find(uint64_t count, const Chance& chance) {
  parts_.resize(size_ == 0 ? 0 : (count + kPartDraws - 1) / kPartDraws);
  pool_.parallel_for(parts_.size(), [&](size_t p) {
    std::array<uint32_t, kPartDraws + 1> draws;
    std::array<uint64_t, kPartDraws + 1> targets;
    const uint64_t first = p * kPartDraws;
    const auto some = static_cast<uint32_t>(std::min(kPartDraws, count - first));
    const base::RangePart own(begin_, size_, all_, places_);
    const size_t kept = chance.scan(own, first, some, draws.data(), targets.data());
    parts_[p].draws.assign(draws.begin(), draws.begin() + kept);
    parts_[p].targets.assign(targets.begin(), targets.begin() + kept);
  });
}

uint64_t OwnDraws::number_parts() {
  uint64_t own = 0;
  for (Part& part : parts_) {
    part.begin = own;
    own += part.draws.size();
  }
  return own;
}

void OwnDraws::find_least(GroupDraw& out) const {
  out.least = GroupDraw::kNone;
  for (const Part& part : parts_) {
    out.least = std::min(out.least, part.least);
  }
}

}  // namespace gear::select

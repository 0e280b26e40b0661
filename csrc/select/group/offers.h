#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "base/errors.h"
#include "select/group/group_draw.h"

namespace gear::select {

// Offers are whole numbers of 64 bits, rank after rank, at any address.

inline void put_offer(std::span<const uint64_t> numbers, std::span<std::byte> out) {
  GEAR_CHECK(out.size() == numbers.size_bytes());
  std::memcpy(out.data(), numbers.data(), out.size());
}

inline uint64_t offer_at(std::span<const std::byte> offers, size_t i) {
  uint64_t number = 0;
  std::memcpy(&number, offers.data() + i * sizeof number, sizeof number);
  return number;
}

/// A number from every rank, by rank.
inline void gather_one(const GroupRequest& request, uint64_t mine, uint32_t ranks,
                       std::vector<uint64_t>& all) {
  all.resize(ranks);
  request.gather({&mine, 1}, std::vector<uint64_t>(ranks, 1), all);
}

/// Where nobody offers anything, every rank throws the same.
[[noreturn]] inline void throw_nothing_offered() {
  throw base::InvalidArgument(
      "[sampler] no rank offers anything to draw: append steps, or wait until some rank has; by "
      "priority, none of priority 0 is drawn");
}

}  // namespace gear::select

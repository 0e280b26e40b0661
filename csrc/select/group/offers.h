#pragma once

#include <algorithm>
#include <bit>
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

/// What a rank tells of the draws that fell on it, in one number.
struct Told {
  uint64_t count;  ///< below 2^32, as all of them together
  float least;     ///< GroupDraw::least of it alone

  uint64_t pack() const {
    GEAR_CHECK(count <= UINT32_MAX);
    return count << 32 | std::bit_cast<uint32_t>(least);
  }
  static Told unpack(uint64_t number) {
    return {number >> 32, std::bit_cast<float>(static_cast<uint32_t>(number))};
  }
};

/// How many draws fell on each rank, by rank; out.least becomes that of all ranks.
inline void gather_counts(const GroupRequest& request, uint32_t ranks, GroupDraw& out) {
  const uint64_t mine = Told{out.own.size(), out.least}.pack();
  out.counts.resize(ranks);
  request.gather({&mine, 1}, std::vector<uint64_t>(ranks, 1), out.counts);
  for (uint64_t& one : out.counts) {
    const Told told = Told::unpack(one);
    out.least = std::min(out.least, told.least);
    one = told.count;
  }
}

/// Where nobody offers anything, every rank throws the same.
[[noreturn]] inline void throw_nothing_offered() {
  throw base::InvalidArgument(
      "[sampler] no rank offers anything to draw: append steps, or wait until some rank has; by "
      "priority, none of priority 0 is drawn");
}

}  // namespace gear::select

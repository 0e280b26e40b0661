#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "base/errors.h"
#include "transport/transport.h"

namespace gear::transport {

/// The bytes of a plain value, without padding inside: they go to other processes as they are.
template <class T>
ConstBytes bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

/// What every rank gave, by rank. Collective.
template <class T>
std::vector<T> allgather(Transport& transport, const T& mine) {
  std::vector<T> all(transport.size());
  transport.allgather(bytes_of(mine), std::as_writable_bytes(std::span(all)));
  return all;
}

/// What every rank gave, rank after rank: counts[r] values of rank r, as all know. Collective.
template <class T>
void gather(Transport& transport, std::span<const T> mine, std::span<const uint64_t> counts,
            std::span<T> all) {
  if (std::ranges::all_of(counts, [&](uint64_t count) { return count == counts[0]; })) {
    transport.allgather(std::as_bytes(mine), std::as_writable_bytes(all));
    return;
  }
  std::vector<uint64_t> sizes;
  sizes.reserve(counts.size());
  for (const uint64_t count : counts) {
    sizes.push_back(count * sizeof(T));
  }
  const std::vector<ConstBytes> to(transport.size(), std::as_bytes(mine));
  auto next = std::as_writable_bytes(all).begin();
  for (const ConstBytes one : transport.exchange(to, sizes)) {
    next = std::ranges::copy(one, next).out;
  }
}

/// mine[r] goes to rank r; what every rank sent here, by rank. Collective.
template <class T>
std::vector<T> alltoall(Transport& transport, const std::vector<T>& mine) {
  std::vector<ConstBytes> to;
  to.reserve(mine.size());
  for (const T& one : mine) {
    to.push_back(bytes_of(one));
  }
  std::vector<T> arrived(transport.size());
  const std::vector<uint64_t> sizes(transport.size(), sizeof(T));
  auto next = std::as_writable_bytes(std::span(arrived)).begin();
  for (const ConstBytes one : transport.exchange(to, sizes)) {
    next = std::ranges::copy(one, next).out;
  }
  return arrived;
}

/// The same of as many values for every rank as there are. Collective. Throws TransportError where
/// a rank sends a part of a value.
template <class T>
std::vector<std::vector<T>> exchange_lists(Transport& transport,
                                           const std::vector<std::vector<T>>& mine) {
  std::vector<ConstBytes> to;
  to.reserve(mine.size());
  for (const auto& one : mine) {
    to.push_back(std::as_bytes(std::span(one)));
  }
  std::vector<std::vector<T>> arrived(transport.size());
  const std::span<const ConstBytes> all = transport.exchange(to);
  for (uint32_t r = 0; r < all.size(); ++r) {
    if (all[r].size() % sizeof(T) != 0) {
      throw base::TransportError(base::cat("[transport] rank ", r, " sends ", all[r].size(),
                                           " bytes, which are no values of ", sizeof(T),
                                           ": ranks of one group must run the same build"));
    }
    arrived[r].resize(all[r].size() / sizeof(T));
    std::ranges::copy(all[r], std::as_writable_bytes(std::span(arrived[r])).begin());
  }
  return arrived;
}

}  // namespace gear::transport

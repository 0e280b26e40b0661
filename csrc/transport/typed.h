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

/// What another rank says that it sends, before memory is taken for it. Throws TransportError.
inline void check_announced(uint32_t rank, uint64_t count, uint64_t most) {
  if (count > most) {
    throw base::TransportError(base::cat("[transport] rank ", rank, " announces ", count,
                                         " values, and at most ", most, " can come: ranks of one ",
                                         "group must run the same build"));
  }
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
  const std::vector<ConstBytes> to(transport.size(), std::as_bytes(mine));
  std::vector<Bytes> from;
  for (const uint64_t count : counts) {
    from.push_back(std::as_writable_bytes(all.first(count)));
    all = all.subspan(count);
  }
  transport.alltoallv(to, from);
}

/// mine[r] goes to rank r; what every rank sent here, by rank. Collective.
template <class T>
std::vector<T> alltoall(Transport& transport, const std::vector<T>& mine) {
  std::vector<T> arrived(transport.size());
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  for (uint32_t r = 0; r < transport.size(); ++r) {
    to.push_back(bytes_of(mine[r]));
    from.push_back(std::as_writable_bytes(std::span(&arrived[r], 1)));
  }
  transport.alltoallv(to, from);
  return arrived;
}

/// The same of as many values for every rank as there are. Collective: the numbers first. Throws
/// TransportError where a rank announces more than `most`.
template <class T>
std::vector<std::vector<T>> alltoallv(Transport& transport, const std::vector<std::vector<T>>& mine,
                                      uint64_t most) {
  std::vector<uint64_t> counts;
  counts.reserve(mine.size());
  for (const auto& one : mine) {
    counts.push_back(one.size());
  }
  const std::vector<uint64_t> arriving = alltoall(transport, counts);
  std::vector<std::vector<T>> arrived(transport.size());
  std::vector<ConstBytes> to;
  std::vector<Bytes> from;
  for (uint32_t r = 0; r < transport.size(); ++r) {
    check_announced(r, arriving[r], most);
    arrived[r].resize(arriving[r]);
    to.push_back(std::as_bytes(std::span(mine[r])));
    from.push_back(std::as_writable_bytes(std::span(arrived[r])));
  }
  transport.alltoallv(to, from);
  return arrived;
}

}  // namespace gear::transport

#include "transport/transport.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "transport/by_node/roll_call.h"
#include "transport/collective.h"
#include "transport/one_sided/remote_memory.h"

namespace gear::transport {

void Transport::look() {}

std::vector<uint32_t> Transport::present(double) {
  std::vector<uint32_t> ranks(size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

std::unique_ptr<RemoteMemory> Transport::expose(Bytes) { return nullptr; }

// Sizes are in memory of the caller's, and so are those that came once they are copied.
std::span<const ConstBytes> Transport::exchange_sparse(std::span<const ConstBytes> to,
                                                       std::span<const uint8_t> from) {
  check_sparse(rank(), size(), to, from);
  std::vector<uint64_t> sent(size());
  std::vector<uint64_t> sizes(size());
  std::vector<ConstBytes> told(size());
  for (uint32_t r = 0; r < size(); ++r) {
    sent[r] = to[r].size();
    if (r == rank()) {
      continue;
    }
    sizes[r] = from[r] != 0 ? sizeof(uint64_t) : 0;
    if (!to[r].empty()) {
      told[r] = std::as_bytes(std::span(&sent[r], 1));
    }
  }
  const std::span<const ConstBytes> came = exchange(told, sizes);
  for (uint32_t r = 0; r < size(); ++r) {
    if (sizes[r] != 0) {
      std::memcpy(&sizes[r], came[r].data(), sizeof sizes[r]);
    }
  }
  sizes[rank()] = to[rank()].size();
  return exchange(to, sizes);
}

void Transport::allgather_among(std::span<const uint32_t> ranks, ConstBytes mine, Bytes all) {
  // Those that are not among them do not know how long the others' bytes are.
  const bool takes_part = std::ranges::binary_search(ranks, rank());
  std::vector<ConstBytes> to(size());
  std::vector<uint64_t> sizes(size());
  if (takes_part) {
    check_allgather(static_cast<uint32_t>(ranks.size()), mine, all);
    for (const uint32_t r : ranks) {
      to[r] = mine;
      sizes[r] = mine.size();
    }
  }
  const std::span<const ConstBytes> came = exchange(to, sizes);
  for (size_t i = 0; takes_part && !mine.empty() && i < ranks.size(); ++i) {
    std::memcpy(all.data() + i * mine.size(), came[ranks[i]].data(), mine.size());
  }
}

void Transport::gather_to(uint32_t to, ConstBytes mine, Bytes all) {
  std::vector<std::byte> room(rank() == to ? 0 : size() * mine.size());
  allgather(mine, rank() == to ? all : Bytes(room));
}

void Transport::broadcast(uint32_t from, Bytes bytes) {
  std::vector<std::byte> all(size() * bytes.size());
  allgather(bytes, all);
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), all.data() + from * bytes.size(), bytes.size());
  }
}

std::vector<uint32_t> Transport::awaited() { return {}; }

std::unique_ptr<RollCall> Transport::roll_call() { return nullptr; }

}  // namespace gear::transport

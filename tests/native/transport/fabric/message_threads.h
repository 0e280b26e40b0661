#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "ranks.h"
#include "transport/by_node/by_node.h"
#include "transport/fabric/mail_ranks.h"
#include "transport/shared/shared_memory.h"

/// Ranks that have a Mail each, as threads of this process.
namespace gear::testing {

/// The provider net of libfabric 1.17 does not free what its endpoints had.
inline const char* const kProviderThatFrees = "tcp;ofi_rxm";

inline std::vector<std::shared_ptr<messages::Mail>> open_mails(uint32_t size) {
  std::vector<Opened> opened;
  std::vector<transport::Opaque> addresses;
  for (uint32_t r = 0; r < size; ++r) {
    opened.push_back(open_mail(kProviderThatFrees, kToken));
    addresses.push_back(opened[r].frames->address());
  }
  std::vector<std::shared_ptr<messages::Mail>> mails;
  for (uint32_t r = 0; r < size; ++r) {
    opened[r].know(r, addresses);
    mails.push_back(opened[r].mail);
  }
  return mails;
}

inline Ranks make_messages_by_libfabric(uint32_t size, double timeout_s) {
  const auto mails = open_mails(size);
  Ranks ranks;
  for (uint32_t r = 0; r < size; ++r) {
    ranks.push_back(std::make_unique<messages::Messages>(mails[r], r, size, timeout_s));
  }
  return ranks;
}

/// The ranks of a node, which is numbered as in `nodes`, ascending.
inline std::vector<uint32_t> ranks_of_node(const std::vector<uint32_t>& nodes, uint32_t node) {
  std::vector<uint32_t> ranks;
  for (uint32_t r = 0; r < nodes.size(); ++r) {
    if (nodes[r] == node) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

/// Two or three nodes, uneven ones too, whose ranks do not follow each other.
inline std::vector<uint32_t> varied_nodes(uint32_t size) {
  std::vector<uint32_t> nodes{0, 0, 1, 1};
  if (size > nodes.size()) {
    nodes = {5, 5, 2, 9, 2, 5, 9};
  }
  nodes.resize(size, 0);
  return nodes;
}

inline Ranks make_by_nodes(const std::vector<uint32_t>& nodes, double timeout_s) {
  const auto size = static_cast<uint32_t>(nodes.size());
  const auto mails = open_mails(size);
  const double limit_s = transport::by_node_limit_s(timeout_s);
  std::vector<std::shared_ptr<memory::Region>> regions(size);
  for (uint32_t r = 0; r < size; ++r) {
    const std::vector<uint32_t> near = ranks_of_node(nodes, nodes[r]);
    regions[r] = r == near[0]
                     ? memory::make_region(
                           memory::Tier::kHost,
                           transport::shared_memory_bytes(static_cast<uint32_t>(near.size())))
                     : regions[near[0]];
  }
  Ranks ranks(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto failure = std::make_shared<Failure>();
      const std::vector<uint32_t> known_as = ranks_of_node(nodes, nodes[r]);
      const auto place = static_cast<uint32_t>(std::ranges::find(known_as, r) - known_as.begin());
      auto near = known_as.size() == 1
                      ? nullptr
                      : transport::make_shared_memory(regions[r], place,
                                                      static_cast<uint32_t>(known_as.size()),
                                                      limit_s, failure, known_as);
      auto far = std::make_unique<messages::Messages>(mails[r], r, size, limit_s, failure);
      ranks[r] =
          transport::make_by_node(std::move(near), std::move(far), nodes, timeout_s, failure);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ranks;
}

}  // namespace gear::testing

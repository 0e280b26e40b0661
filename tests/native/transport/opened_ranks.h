#pragma once

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ranks.h"
#include "transport/loopback.h"

namespace gear::testing {

/// Rank r is in machine r % num_machines, a node; tests/rdma has two.
inline const uint32_t num_machines = std::getenv("GEAR_TEST_MACHINE") == nullptr ? 1 : 2;

inline std::vector<uint32_t> nodes_of(uint32_t size) {
  std::vector<uint32_t> nodes(size);
  for (uint32_t r = 0; r < size; ++r) {
    nodes[r] = r % num_machines;
  }
  return nodes;
}

/// How tests make messages; null for ranks of another machine.
inline Ranks (*make_messages)(uint32_t size, double timeout_s) =
    [](uint32_t size, double timeout_s) { return transport::make_loopback(size, timeout_s); };

/// The ranks of a transport beside those messages, as threads of this process: what
/// `open(std::shared_ptr<Transport> messages)` returns. Throws what the first of them does.
template <class Open>
Ranks open_ranks(uint32_t size, double timeout_s, const Open& open) {
  Ranks messages = make_messages(size, timeout_s);
  Ranks ranks(size);
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    if (!messages[r]) {
      continue;
    }
    threads.emplace_back([&, r] {
      try {
        ranks[r] = open(std::shared_ptr<transport::Transport>(std::move(messages[r])));
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  return ranks;
}

}  // namespace gear::testing

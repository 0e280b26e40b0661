#pragma once

#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "ranks.h"
#include "transport/loopback.h"

namespace gear::testing {

/// The ranks of a transport beside messages of this process, as its threads: what
/// `open(std::shared_ptr<Transport> messages)` returns. Throws what the first of them does.
template <class Open>
Ranks open_ranks(uint32_t size, double timeout_s, const Open& open) {
  Ranks messages = transport::make_loopback(size, timeout_s);
  Ranks ranks(size);
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
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

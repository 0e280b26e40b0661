#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ranks.h"
#include "transport/loopback.h"
#include "transport/remote_memory.h"
#include "transport/verbs/verbs_transport.h"

namespace gear::testing {

/// What these tests are of: a fake in the native tests, the machine's libibverbs in tests/rdma.
const transport::verbs::VerbsLibrary& verbs_under_test();

/// The ranks of a transport verbs as threads of this process; throws what the first of them does.
inline Ranks make_verbs_ranks(uint32_t size, double timeout_s,
                              const transport::VerbsOptions& options = {},
                              const transport::verbs::VerbsLibrary& (*find)() = verbs_under_test) {
  Ranks messages = transport::make_loopback(size, timeout_s);
  Ranks ranks(size);
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        ranks[r] = transport::verbs::open_verbs(std::move(messages[r]), options, find);
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

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "transport/transport.h"

namespace gear::testing {

using Ranks = std::vector<std::unique_ptr<transport::Transport>>;

// Runs body(transport) for every rank in a thread of its own; what each threw, "" for nothing, by
// rank. Any rank may be null: it takes no part. One that threw looks at its transport until all
// have returned, as a program does that goes on: what it has told may not have left yet.
template <class Body>
std::vector<std::string> errors_of(Ranks& ranks, const Body& body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  std::atomic<size_t> running = ranks.size();
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (!ranks[r]) {
      --running;
      continue;
    }
    threads.emplace_back([&, r] {
      try {
        body(*ranks[r]);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      }
      --running;
      while (!errors[r].empty() && running > 0) {
        try {
          ranks[r]->look();
        } catch (const base::TransportError&) {
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

// The same of those that take part alone.
template <class Body>
std::vector<std::string> errors_here(Ranks& ranks, const Body& body) {
  std::vector<std::string> errors;
  const std::vector<std::string> all = errors_of(ranks, body);
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r]) {
      errors.push_back(all[r]);
    }
  }
  return errors;
}

// In a rank's thread, where doctest's assertions are not at home.
inline void expect(bool condition, const char* what) {
  if (!condition) {
    throw std::logic_error(what);
  }
}

}  // namespace gear::testing

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "memory/region.h"
#include "ranks.h"
#include "transport/failure.h"
#include "transport/loopback.h"
#include "transport/on_all.h"
#include "transport/shared/shared_memory.h"

// What ends one wait of a rank ends all of them, and those of the ranks that it reaches.

using namespace gear::transport;
using gear::testing::errors_of;
using gear::testing::Ranks;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test

std::vector<std::shared_ptr<Failure>> failures_of(uint32_t size) {
  std::vector<std::shared_ptr<Failure>> failures;
  for (uint32_t r = 0; r < size; ++r) {
    failures.push_back(std::make_shared<Failure>());
  }
  return failures;
}

Ranks make(const std::string& kind, const std::vector<std::shared_ptr<Failure>>& failures) {
  const auto size = static_cast<uint32_t>(failures.size());
  if (kind == "loopback") {
    return make_loopback(size, kLong, failures);
  }
  const std::shared_ptr<gear::memory::Region> region =
      gear::memory::make_region(gear::memory::Tier::kHost, shared_memory_bytes(size));
  Ranks ranks(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    threads.emplace_back(
        [&, r] { ranks[r] = make_shared_memory(region, r, size, kLong, failures[r]); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ranks;
}

void gather(Transport& transport) {
  const std::byte mine{};
  std::vector<std::byte> all(transport.size());
  transport.allgather({&mine, 1}, all);
}

thread_local bool t_interrupted = false;

void interrupt() {
  if (t_interrupted) {
    throw std::domain_error("Ctrl-C");
  }
}

}  // namespace

TEST_CASE("failure: what a rank tells ends the waits of all, in every transport") {
  for (const char* kind : {"loopback", "shared_memory"}) {
    CAPTURE(kind);
    const auto failures = failures_of(3);
    Ranks first = make(kind, failures);
    Ranks second = make(kind, failures);
    std::vector<std::thread> threads;
    std::vector<std::string> said(2);
    // Ranks 0 and 1 wait for rank 2, each in another transport.
    for (uint32_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        try {
          gather(r == 0 ? *first[0] : *second[1]);
        } catch (const gear::base::TransportError& error) {
          said[r] = error.what();
        }
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    failures[2]->tell("rank 2 has no more to say");
    failures[2]->tell("and says so twice");
    for (std::thread& thread : threads) {
      thread.join();
    }
    CHECK(said[0] == "rank 2 has no more to say");
    CHECK(said[1] == "rank 2 has no more to say");
    for (const std::string& error : errors_of(second, gather)) {
      CHECK(error == "rank 2 has no more to say");
    }
    for (const auto& failure : failures) {
      CHECK(failure->text() == "rank 2 has no more to say");
    }
  }
}

TEST_CASE("failure: a rank that is in no call finds it when it looks") {
  for (const char* kind : {"loopback", "shared_memory"}) {
    CAPTURE(kind);
    const auto failures = failures_of(3);
    const Ranks ranks = make(kind, failures);
    for (const auto& rank : ranks) {
      CHECK_NOTHROW(rank->look());
    }
    failures[2]->tell("rank 2 has no more to say");
    for (const auto& rank : ranks) {
      CHECK_THROWS_WITH_AS(rank->look(), "rank 2 has no more to say", gear::base::TransportError);
    }
  }
}

TEST_CASE("failure: a transport that is made after it hears of it") {
  const auto failures = failures_of(2);
  const Ranks ranks = make("loopback", failures);
  const std::unique_ptr<Transport> twin = [&] {
    std::unique_ptr<Transport> made;
    std::thread other([&] { static_cast<void>(ranks[1]->duplicate()); });
    made = ranks[0]->duplicate();
    other.join();
    return made;
  }();
  failures[0]->tell("over");
  CHECK_THROWS_WITH_AS(gather(*twin), "over", gear::base::TransportError);
}

TEST_CASE("failure: what interrupts a wait goes up as it is, and the others are told") {
  gear::base::interrupt_check.store(&interrupt);
  for (const char* kind : {"loopback", "shared_memory"}) {
    CAPTURE(kind);
    Ranks ranks = make(kind, failures_of(3));
    std::string up;
    std::string heard;
    std::thread interrupted([&] {
      t_interrupted = true;
      try {
        gather(*ranks[0]);
      } catch (const std::domain_error& error) {
        up = error.what();
      }
    });
    std::thread other([&] {
      try {
        gather(*ranks[1]);
      } catch (const gear::base::TransportError& error) {
        heard = error.what();
      }
    });
    interrupted.join();
    other.join();
    CHECK(up == "Ctrl-C");
    CHECK(heard.find("[transport] rank 0 (pid ") == 0);
    CHECK(heard.find("was interrupted in allgather") != std::string::npos);
  }
  gear::base::interrupt_check.store(nullptr);
}

TEST_CASE("what fails on one rank is told to all, whatever kind of failure it is") {
  const std::vector<std::pair<const char*, std::function<void()>>> kinds = {
      {"not here", [] { throw gear::base::InvalidArgument("not here"); }},
      {"no memory left", [] { throw std::bad_alloc(); }},
      {"too long", [] { throw std::length_error("too long"); }},
      {"refused", [] { throw std::runtime_error("refused"); }}};
  for (const auto& [words, fail] : kinds) {
    Ranks ranks = make_loopback(2, kLong);
    const auto errors = errors_of(ranks, [&](Transport& transport) {
      agree(transport, "it", failure_of([&] {
              if (transport.rank() == 1) {
                fail();
              }
            }));
    });
    CHECK(errors ==
          std::vector<std::string>(2, gear::base::cat("[transport] it: rank 1: ", words)));
  }
}

TEST_CASE("failure: a rank without memory is not taken for one that was interrupted") {
  const auto told = [](const auto& thrown) {
    Failure failure;
    try {
      throw thrown;
    } catch (...) {
      failure.tell_interrupted(3, "allgather");
    }
    return failure.text();
  };
  CHECK(told(std::bad_alloc()).find(") has no memory left for allgather: ") != std::string::npos);
  CHECK(told(std::runtime_error("")).find(") was interrupted in allgather: ") != std::string::npos);
}

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "forked_ranks.h"
#include "memory/shared/shared_header.h"
#include "transport/shared/shared_memory.h"

// shared_memory between processes: what threads of one cannot show.

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr double kLong = 200;

bool left_behind(const std::string& name) {
  return ::access(("/dev/shm" + gear::memory::shared_object_name(name)).c_str(), F_OK) == 0;
}

void gather(Transport& transport, uint8_t value) {
  const std::byte mine{static_cast<uint8_t>(value + transport.rank())};
  std::vector<std::byte> all(transport.size());
  transport.allgather({&mine, 1}, all);
  for (uint32_t r = 0; r < transport.size(); ++r) {
    if (all[r] != std::byte{static_cast<uint8_t>(value + r)}) {
      throw std::logic_error("allgather delivered other bytes");
    }
  }
}

// Several outboxes full for every other rank.
void exchange(Transport& transport) {
  const uint32_t size = transport.size();
  std::vector<std::vector<std::byte>> sent(size);
  for (uint32_t r = 0; r < size; ++r) {
    sent[r].assign(300'000 + transport.rank() * size + r, static_cast<std::byte>(r + 1));
  }
  const std::vector<ConstBytes> to(sent.begin(), sent.end());
  const std::span<const ConstBytes> received = transport.exchange(to);
  const auto value = static_cast<std::byte>(transport.rank() + 1);
  for (uint32_t r = 0; r < size; ++r) {
    if (received[r].size() != 300'000 + r * size + transport.rank() ||
        !std::ranges::all_of(received[r], [=](std::byte one) { return one == value; })) {
      throw std::logic_error("exchange delivered other bytes");
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point started) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
}

}  // namespace

TEST_CASE("shared_memory: ranks that are processes, more of them than cores") {
  const std::string name = shared_name_of("transport-work");
  for (const uint32_t size : {2u, 4u, 8u}) {
    for (const Child& child : start_ranks(size, [&](uint32_t rank) {
           const auto transport = make_shared_memory(name, rank, size, kLong);
           const auto second = transport->duplicate();
           for (uint8_t round = 0; round < 100; ++round) {
             gather(*transport, round);
             gather(*second, static_cast<uint8_t>(round + 50));
           }
           exchange(*transport);
         })) {
      CHECK(child.words() == "done");
    }
    CHECK(!left_behind(name));
  }
}

TEST_CASE("shared_memory: a rank that is killed is named at once, and nothing is left behind") {
  const std::string name = shared_name_of("transport-kill");
  for (const bool large : {false, true}) {
    const auto started = std::chrono::steady_clock::now();
    const std::vector<Child> children = start_ranks(4, [&](uint32_t rank) {
      const auto transport = make_shared_memory(name, rank, 4, kLong);
      for (int round = 0;; ++round) {
        if (large) {
          exchange(*transport);
        } else {
          gather(*transport, 7);
        }
        if (rank == 2 && round == 3) {
          ::kill(::getpid(), SIGKILL);
        }
      }
    });
    for (size_t r = 0; r < children.size(); ++r) {
      const std::string words = children[r].words();
      const std::string want =
          gear::base::cat("[transport] rank 2 (pid ", children[2].pid, ") has ended: ");
      CHECK((r == 2 ? words == "" : words.rfind(want, 0) == 0));
      INFO(words);
    }
    CHECK(seconds_since(started) < kLong / 4);
    CHECK(!left_behind(name));
  }
}

TEST_CASE("shared_memory: a rank killed before all have come leaves no name behind") {
  const std::string name = shared_name_of("transport-early");
  const auto join = [&](uint32_t rank) { make_shared_memory(name, rank, 3, kLong); };
  const Child first = start_rank(0, join);
  const Child second = start_rank(1, join);
  while (!left_behind(name)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  REQUIRE(::kill(first.pid, SIGKILL) == 0);
  const std::string words = second.words();
  CHECK(words.find(gear::base::cat("rank 0 (pid ", first.pid, ") has ended")) != std::string::npos);
  CHECK(first.words() == "");
  CHECK(!left_behind(name));
}

TEST_CASE("shared_memory: ranks that never come are named, first or other") {
  const std::string name = shared_name_of("transport-late");
  for (const uint32_t present : {0u, 1u}) {
    const std::string words =
        start_rank(present, [&](uint32_t rank) { make_shared_memory(name, rank, 3, 0.3); }).words();
    INFO(words);
    const char* missing = present == 0 ? "[transport] ranks 1 and 2 did not take part in the start"
                                       : "[transport] rank 0 did not take part in the start";
    CHECK(words.rfind(missing, 0) == 0);
    CHECK(!left_behind(name));
  }
}

TEST_CASE("shared_memory: ranks that disagree about the group are refused") {
  const std::string name = shared_name_of("transport-disagree");
  const Child zero = start_rank(0, [&](uint32_t rank) { make_shared_memory(name, rank, 2, 5); });
  const std::string words =
      start_rank(1, [&](uint32_t rank) { make_shared_memory(name, rank, 3, 5); }).words();
  CHECK(words.find("joins a group of 3 ranks, rank 0 opened it for 2") != std::string::npos);
  CHECK(zero.words().find("rank 1 did not take part") != std::string::npos);

  CHECK_THROWS_WITH_AS(make_shared_memory("a/b", 0, 1, 1), doctest::Contains("is not accepted"),
                       gear::base::InvalidArgument);
  CHECK_THROWS_WITH_AS(make_shared_memory(name, 0, 2000, 1), doctest::Contains("1024 at most"),
                       gear::base::InvalidArgument);
}

TEST_CASE("shared_memory: a forked child that ends takes no rank along") {
  const std::string name = shared_name_of("transport-fork");
  const auto transport = make_shared_memory(name, 0, 1, kLong);
  const Child child = start_rank(0, [&](uint32_t) {
    auto& inherited = const_cast<std::unique_ptr<Transport>&>(transport);
    inherited.reset();
  });
  CHECK(child.words() == "done");
  gather(*transport, 1);
}

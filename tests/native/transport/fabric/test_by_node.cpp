// Control by node, over libfabric's tcp between processes of this machine that are told to be on
// several nodes.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "transport/by_node/by_node.h"
#include "transport/fabric/mail_ranks.h"
#include "transport/loopback.h"
#include "transport/shared/shared_memory.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

using Nodes = std::vector<uint32_t>;

const std::vector<Nodes> kVariedNodes = {
    {0},
    {0, 0},
    {0, 1},
    {1, 0, 1},
    {3, 3, 3, 8},
    {0, 1, 2, 0, 1},
    {2, 1, 0, 2, 1, 0},
    {5, 5, 2, 9, 2, 5, 9},
};

std::unique_ptr<Transport> join_by_node(const Board& board, const Nodes& nodes, uint32_t rank,
                                        double timeout_s = kLong,
                                        std::shared_ptr<Failure> failure = nullptr) {
  failure = or_own(std::move(failure));
  const double limit_s = by_node_limit_s(timeout_s);
  Nodes near;
  for (uint32_t r = 0; r < nodes.size(); ++r) {
    if (nodes[r] == nodes[rank]) {
      near.push_back(r);
    }
  }
  // The board's meeting comes first, so that the name is of this test's ranks alone.
  auto far = join(board, rank, limit_s, failure);
  std::unique_ptr<Transport> shared;
  if (near.size() > 1) {
    shared = make_shared_memory(
        gear::base::cat("test-by-node-", ::getppid(), "-", board.number(), "-", near[0]),
        static_cast<uint32_t>(std::ranges::find(near, rank) - near.begin()),
        static_cast<uint32_t>(near.size()), limit_s, failure, near);
  }
  return make_by_node(std::move(shared), std::move(far), nodes, timeout_s, failure);
}

Nodes all_but(const Nodes& nodes, const Nodes& left_out) {
  Nodes ranks;
  for (uint32_t r = 0; r < nodes.size(); ++r) {
    if (std::ranges::find(left_out, r) == left_out.end()) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

bool starts(const std::string& words, const std::string& how) { return words.rfind(how, 0) == 0; }

}  // namespace

TEST_CASE("by node: random exchanges and allgathers are those of a reference") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const Nodes& nodes : kVariedNodes) {
    const Board board(static_cast<uint32_t>(nodes.size()));
    check_done(start(board, [&](uint32_t rank) {
      const auto transport = join_by_node(board, nodes, rank);
      for (const uint64_t bytes : {1ul, 8ul, 0ul, 1000ul, 100'000ul}) {
        gather(*transport, 1, bytes);
      }
      for (uint32_t turn = 0; turn < 24; ++turn) {
        exchange(*transport, turn, static_cast<Sizes>(turn % 2),
                 [&](uint32_t from, uint32_t to) { return random_size(turn, from, to); });
        gather(*transport, turn, 1 + turn);
      }
      const auto second = transport->duplicate();
      exchange(*second, 3, Sizes::kEachTells, [](uint32_t from, uint32_t to) { return from + to; });
      gather(*second->duplicate(), 4, 24);
      gather(*transport, 5, 24);
      return "done";
    }));
  }
}

TEST_CASE("by node: more ranks than ask after all") {
  if (!libfabric_is_here()) {
    return;
  }
  Nodes nodes;
  for (uint32_t r = 0; r < 70; ++r) {
    nodes.push_back(r % 9);
  }
  const Board board(70);
  const auto children = start(board, [&](uint32_t rank) {
    const auto transport = join_by_node(board, nodes, rank, 15);
    exchange(*transport, 1, Sizes::kEachTells, [](uint32_t from, uint32_t to) -> uint64_t {
      return (from * 13 + to) % 29 == 0 ? 1 + from * 70 + to : 0;
    });
    gather(*transport, 2, 16);
    if (rank == 33) {
      ::kill(::getpid(), SIGSTOP);
    }
    gather(*transport, 3, 16);
    return "done";
  });
  for (const uint32_t r : all_but(nodes, {33})) {
    const std::string words = children[r].words();
    INFO(words);
    CHECK(starts(words, "[transport] rank 33 did not take part in allgather within 15 s"));
  }
  ::kill(children[33].pid, SIGKILL);
  CHECK(children[33].words() == "");
}

TEST_CASE("by node: a rank that is stopped is named by its rank in the group, on all nodes") {
  if (!libfabric_is_here()) {
    return;
  }
  const Nodes nodes{0, 0, 1, 1, 1};
  struct Case {
    uint32_t stopped;  // a head, or one that is none
    bool exchanges;
    std::unique_ptr<Board> board = std::make_unique<Board>(5);
    std::vector<Child> children = {};
  };
  std::vector<Case> cases;
  for (const uint32_t stopped : {2u, 4u}) {
    cases.push_back({stopped, false});
    cases.push_back({stopped, true});
  }
  for (Case& one : cases) {
    one.children = start(*one.board, [&](uint32_t rank) {
      const auto transport = join_by_node(*one.board, nodes, rank, 4);
      gather(*transport, 0, 8);
      if (rank == one.stopped) {
        ::kill(::getpid(), SIGSTOP);
      }
      if (one.exchanges) {
        exchange(*transport, 1, Sizes::kEachTells, [](uint32_t, uint32_t) { return 1000; });
      } else {
        gather(*transport, 1, 8);
      }
      return "done";
    });
  }
  for (const Case& one : cases) {
    for (const uint32_t r : all_but(nodes, {one.stopped})) {
      const std::string words = one.children[r].words();
      INFO(words);
      CHECK(
          starts(words, gear::base::cat("[transport] rank ", one.stopped, " did not take part in ",
                                        one.exchanges ? "exchange" : "allgather", " within 4 s")));
    }
    ::kill(one.children[one.stopped].pid, SIGKILL);
    CHECK(one.children[one.stopped].words() == "");
  }
}

TEST_CASE("by node: who waits for a rank that waits for another names that one") {
  if (!libfabric_is_here()) {
    return;
  }
  // 0 waits for rows of 2, which is in the exchange and waits for 3 of its node; 1 has nothing to
  // wait for, and is gone when the others ask.
  const Nodes nodes{0, 1, 2, 2};
  const Board board(4);
  const auto children = start(board, [&](uint32_t rank) {
    const auto transport = join_by_node(board, nodes, rank, 3);
    gather(*transport, 0, 8);
    if (rank == 3) {
      std::this_thread::sleep_for(std::chrono::seconds(8));
      return std::string("slept");
    }
    exchange(*transport, 1, Sizes::kKnown,
             [](uint32_t from, uint32_t to) { return from == 2 && to == 0 ? 5000 : 0; });
    return std::string("through");
  });
  CHECK(children[1].words() == "through");
  CHECK(children[3].words() == "slept");
  for (const uint32_t r : {0u, 2u}) {
    const std::string words = children[r].words();
    INFO(words);
    CHECK(starts(words, "[transport] rank 3 did not take part in exchange within 3 s"));
  }
}

TEST_CASE("by node: a rank that is killed is named by its node at once, and all hear of it") {
  if (!libfabric_is_here()) {
    return;
  }
  const Nodes nodes{0, 0, 1, 1, 1};
  for (const uint32_t killed : {2u, 4u}) {
    const Board board(5);
    const auto started = std::chrono::steady_clock::now();
    const auto children = start(board, [&](uint32_t rank) {
      const auto transport = join_by_node(board, nodes, rank);
      for (uint32_t turn = 0;; ++turn) {
        gather(*transport, turn, 8);
        if (rank == killed && turn == 3) {
          ::kill(::getpid(), SIGKILL);
        }
      }
      return "done";
    });
    for (const uint32_t r : all_but(nodes, {killed})) {
      const std::string words = children[r].words();
      INFO(words);
      const bool its_end = starts(words, gear::base::cat("[transport] rank ", killed, " (pid ",
                                                         children[killed].pid, ") has ended: "));
      const bool its_link =
          starts(words, gear::base::cat("[transport] a message to rank ", killed, " by "));
      // Where its node's words come late.
      const bool its_line = nodes[r] != nodes[killed] &&
                            starts(words, gear::base::cat("[transport] rank ", killed,
                                                          " closed its loader or ended while "));
      CHECK((its_end || its_link || its_line));
    }
    CHECK(children[killed].words() == "");
    CHECK(seconds_since(started) < kLong / 4);
  }
}

TEST_CASE("by node: words of a rank that gives up are heard on other nodes, in whatever wait") {
  if (!libfabric_is_here()) {
    return;
  }
  const std::string words = "[transport] rank 1 ended with ValueError: boom";
  const Nodes nodes{0, 0, 1, 1, 2};
  for (const uint32_t away : {5u, 3u}) {  // 3: then 2 waits for it, on another node than 1
    const Board board(5);
    const auto started = std::chrono::steady_clock::now();
    const auto children = start(board, [&](uint32_t rank) {
      const auto failure = std::make_shared<Failure>();
      const auto transport = join_by_node(board, nodes, rank, kLong, failure);
      gather(*transport, 0, 8);
      if (rank == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        failure->tell(words);
        return words;
      }
      if (rank == away) {
        std::this_thread::sleep_for(std::chrono::seconds(3));
      }
      gather(*transport, 1, 8);
      return std::string("done");
    });
    for (const Child& child : children) {
      CHECK(child.words() == words);
    }
    CHECK(seconds_since(started) < kLong / 4);
  }
}

TEST_CASE("by node: an interrupt ends a wait, and the others hear who it was") {
  if (!libfabric_is_here()) {
    return;
  }
  const Nodes nodes{0, 0, 1, 1};
  const Board board(4);
  const auto children = start(board, [&](uint32_t rank) {
    const auto transport = join_by_node(board, nodes, rank);
    gather(*transport, 0, 8);
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    } else if (rank == 3) {
      gear::base::interrupt_check = [] { throw std::runtime_error("Ctrl-C"); };
    }
    gather(*transport, 1, 8);
    return "done";
  });
  CHECK(children[3].words() == "Ctrl-C");
  for (const uint32_t r : {0u, 1u, 2u}) {
    const std::string words = children[r].words();
    INFO(words);
    CHECK(starts(words, gear::base::cat("[transport] rank 3 (pid ", children[3].pid,
                                        ") was interrupted in allgather")));
  }
}

TEST_CASE("by node: different calls of whole nodes are refused at once") {
  if (!libfabric_is_here()) {
    return;
  }
  const Nodes nodes{0, 1, 1};
  for (const Sizes how : {Sizes::kEachTells, Sizes::kKnown}) {
    const Board board(3);
    const auto started = std::chrono::steady_clock::now();
    const auto children = start(board, [&](uint32_t rank) {
      const auto transport = join_by_node(board, nodes, rank);
      gather(*transport, 0, 8);
      if (rank == 0) {
        gather(*transport, 1, 8);
      } else {
        exchange(*transport, 1, how,
                 [](uint32_t from, uint32_t to) { return from == 0 || to == 0 ? 1000 : 0; });
      }
      return "done";
    });
    for (const Child& child : children) {
      const std::string words = child.words();
      INFO(words);
      CHECK(words.find("all ranks must make the same calls in the same order") !=
            std::string::npos);
    }
    CHECK(seconds_since(started) < kLong / 4);
  }
}

TEST_CASE("by node: parts that do not fit together are refused") {
  const auto make = [](uint32_t near_size, const Nodes& nodes) {
    auto far = make_loopback(2, 1);
    auto near = make_loopback(near_size, 1);
    make_by_node(std::move(near[0]), std::move(far[0]), nodes, 1, nullptr);
  };
  CHECK_NOTHROW(make(2, {4, 4}));
  CHECK_THROWS_WITH_AS(make(2, {4, 3}), doctest::Contains("rank 0 of 2, 0 of 2 on its node"),
                       gear::base::InvalidArgument);
  CHECK_THROWS_WITH_AS(make(2, {4}), doctest::Contains("give the node of every rank"),
                       gear::base::InvalidArgument);
}

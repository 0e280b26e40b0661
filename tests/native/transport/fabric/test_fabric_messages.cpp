// Messages by libfabric's tcp between processes of this machine.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "scoped_variable.h"
#include "transport/fabric/mail_ranks.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::base::TransportError;
using messages::Messages;

namespace {

constexpr uint64_t kPayload = fabric::kFrameBytes - sizeof(messages::FrameHead);

}  // namespace

TEST_CASE("fabric messages: allgathers and exchanges of one to seven ranks") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const uint32_t size : {1u, 2u, 3u, 5u, 7u}) {
    const Board board(size);
    check_done(start(board, [&](uint32_t rank) {
      const auto messages = join(board, rank);
      for (const uint64_t bytes : {1ul, 8ul, 0ul, 1000ul, 100'000ul}) {
        gather(*messages, 1, bytes);
      }
      uint32_t turn = 0;
      for (const uint64_t bytes : {0ul, 1ul, kPayload, kPayload + 1, 1ul << 20}) {
        for (const Sizes how : {Sizes::kEachTells, Sizes::kKnown}) {
          exchange(*messages, ++turn, how, [&](uint32_t, uint32_t) { return bytes; });
        }
      }
      return "done";
    }));
  }
}

TEST_CASE("fabric messages: random exchanges are those of a reference") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const uint32_t size : {2u, 3u, 5u}) {
    const Board board(size);
    check_done(start(board, [&](uint32_t rank) {
      const auto messages = join(board, rank);
      for (uint32_t turn = 0; turn < 60; ++turn) {
        exchange(*messages, turn, static_cast<Sizes>(turn % 2),
                 [&](uint32_t from, uint32_t to) { return random_size(turn, from, to); });
        gather(*messages, turn, 1 + turn);
      }
      return "done";
    }));
  }
}

TEST_CASE("fabric messages: more ranks than are told apart find out their sizes in rounds") {
  if (!libfabric_is_here()) {
    return;
  }
  const Board board(67);
  check_done(start(board, [&](uint32_t rank) {
    const auto messages = join(board, rank);
    exchange(*messages, 1, Sizes::kEachTells, [&](uint32_t from, uint32_t to) -> uint64_t {
      return (from * 13 + to) % 29 == 0 ? 1 + from * 67 + to : 0;
    });
    gather(*messages, 2, 16);
    return "done";
  }));
}

TEST_CASE("fabric messages: duplicates have an order of their own, in a thread each") {
  if (!libfabric_is_here()) {
    return;
  }
  // Ranks of one process: a sanitizer sees both threads of an endpoint, as it does not in a fork.
  // The provider net of libfabric 1.17 does not free what its endpoints had.
  const ScopedVariable set("GEAR_FABRIC_PROVIDER", "tcp;ofi_rxm");
  const Board board(3);
  std::vector<std::string> said(2 * board.size(), "done");
  const auto attempt = [](std::string& words, const auto& body) {
    try {
      body();
    } catch (const std::exception& error) {
      words = error.what();
    }
  };
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < board.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      attempt(said[2 * rank], [&] {
        const auto first = join(board, rank);
        const auto second = first->duplicate();
        const auto third = second->duplicate();
        std::thread other([&] {
          attempt(said[2 * rank + 1], [&] {
            for (uint32_t turn = 0; turn < 100; ++turn) {
              exchange(*second, turn, Sizes::kKnown,
                       [&](uint32_t from, uint32_t to) { return (from + to + turn) * 97; });
            }
          });
        });
        attempt(said[2 * rank], [&] {
          for (uint32_t turn = 0; turn < 100; ++turn) {
            gather(*first, turn, 24);
            gather(*third, turn + 1, 3);
          }
        });
        other.join();
      });
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  CHECK(said == std::vector<std::string>(2 * board.size(), "done"));
}

TEST_CASE("fabric messages: a rank that has ended or is stopped is named within the time-out") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (const bool exchanges : {false, true}) {
      const Board board(5);
      const auto started = std::chrono::steady_clock::now();
      const auto children = start(board, [&](uint32_t rank) {
        const auto messages = join(board, rank, 4);
        gather(*messages, 0, 8);
        if (rank == 2) {
          ::kill(::getpid(), signal);
        }
        if (exchanges) {
          exchange(*messages, 1, Sizes::kEachTells, [](uint32_t, uint32_t) { return 1000; });
        } else {
          gather(*messages, 1, 8);
        }
        return "done";
      });
      for (const uint32_t r : {0u, 1u, 3u, 4u}) {
        const std::string words = children[r].words();
        INFO(words);
        const bool late =
            words.starts_with("[transport] rank 2 did not take part in " +
                              std::string(exchanges ? "exchange" : "allgather") + " within 4 s");
        const bool ended =
            words.starts_with("[transport] rank 2 closed its loader or ended while ");
        // Some providers tell of a broken connection.
        const bool broken = words.starts_with("[transport] a message to rank 2 by ");
        CHECK((signal == SIGKILL ? late || ended || broken : late));
      }
      ::kill(children[2].pid, SIGKILL);
      CHECK(children[2].words() == "");
      CHECK(seconds_since(started) < kLong / 4);
    }
  }
}

TEST_CASE("fabric messages: a rank that is killed is named long before the time-out") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const bool is_waited_for : {false, true}) {
    for (const bool exchanges : {false, true}) {
      const Board board(3);
      const auto started = std::chrono::steady_clock::now();
      const auto children = start(board, [&](uint32_t rank) {
        const auto messages = join(board, rank);
        gather(*messages, 0, 8);
        if ((rank == 1) == is_waited_for) {
          std::this_thread::sleep_for(std::chrono::seconds(1));
        }
        if (rank == 1) {
          ::kill(::getpid(), SIGKILL);
        }
        if (exchanges) {
          exchange(*messages, 1, Sizes::kEachTells, [](uint32_t, uint32_t) { return 1000; });
        } else {
          gather(*messages, 1, 8);
        }
        return "done";
      });
      for (const uint32_t r : {0u, 2u}) {
        const std::string words = children[r].words();
        INFO(words);
        CHECK((words.starts_with("[transport] rank 1 closed its loader or ended while ") ||
               words.starts_with("[transport] a message to rank 1 by ")));
      }
      CHECK(children[1].words() == "");
      CHECK(seconds_since(started) < kLong / 4);
    }
  }
}

TEST_CASE("fabric messages: ranks that do not come to a call are named, all of them") {
  if (!libfabric_is_here()) {
    return;
  }
  const Board board(6);
  const auto children = start(board, [&](uint32_t rank) {
    const auto messages = join(board, rank, 2);
    gather(*messages, 0, 8);
    if (rank == 1 || rank == 4) {
      std::this_thread::sleep_for(std::chrono::seconds(6));
      return std::string("slept");
    }
    gather(*messages, 1, 8);
    return std::string("done");
  });
  for (uint32_t r = 0; r < 6; ++r) {
    const std::string words = children[r].words();
    INFO(words);
    CHECK(words.starts_with(r == 1 || r == 4 ? "slept"
                                             : "[transport] ranks 1 and 4 did not take part in "
                                               "allgather within 2 s"));
  }
}

TEST_CASE("fabric messages: those that are left find each other, before a failure and after it") {
  if (!libfabric_is_here()) {
    return;
  }
  for (const int signal : {0, SIGKILL, SIGSTOP}) {
    const Board board(5);
    const auto children = start(board, [&](uint32_t rank) {
      const auto messages = join(board, rank, 2);
      const std::vector<uint32_t> all{0, 1, 2, 3, 4};
      must(messages->present(kLong) == all, "not all are there");
      if (rank == 3) {
        ::kill(::getpid(), signal);
      }
      if (signal == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100 * rank));
        must(messages->present(kLong) == all, "not all are there again");
        return "done";
      }
      try {
        gather(*messages, 1, 8);
        must(false, "nobody was missed");
      } catch (const TransportError&) {
      }
      must(messages->present(2) == std::vector<uint32_t>{0, 1, 2, 4}, "not those that are left");
      return "done";
    });
    for (const uint32_t r : {0u, 1u, 2u, 4u}) {
      CHECK(children[r].words() == "done");
    }
    if (signal != 0) {
      ::kill(children[3].pid, SIGKILL);
    }
    CHECK(children[3].words() == (signal == 0 ? "done" : ""));
  }
}

TEST_CASE("fabric messages: words of a rank that gives up end the calls of the others") {
  if (!libfabric_is_here()) {
    return;
  }
  const std::string words = "[transport] rank 1 ended with ValueError: boom";
  const Board board(4);
  const auto started = std::chrono::steady_clock::now();
  const auto children = start(board, [&](uint32_t rank) {
    const auto failure = std::make_shared<Failure>();
    const auto messages = join(board, rank, kLong, failure);
    gather(*messages, 0, 8);
    if (rank == 1) {
      failure->tell(words);
      return words;
    }
    gather(*messages, 1, 8);
    return std::string("done");
  });
  for (const Child& child : children) {
    CHECK(child.words() == words);
  }
  CHECK(seconds_since(started) < kLong / 4);
}

TEST_CASE("fabric messages: calls and sizes that differ are refused by name") {
  if (!libfabric_is_here()) {
    return;
  }
  const auto error_of = [&](const std::function<void(Messages&)>& body) {
    const Board board(2);
    const auto children = start(board, [&](uint32_t rank) {
      const auto messages = join(board, rank, 20);
      gather(*messages, 0, 8);
      body(*messages);
      gather(*messages, 1, 8);
      return "done";
    });
    return children[0].words() + " | " + children[1].words();
  };
  const std::vector<std::byte> eight(8);
  const auto check_said = [&](const std::string& said, const char* part) {
    INFO(said);
    CHECK(said.find(part) != std::string::npos);
  };
  check_said(error_of([&](Messages& messages) {
               if (messages.rank() == 0) {
                 gather(messages, 1, 8);
               } else {
                 messages.exchange(std::vector<ConstBytes>(2, eight), {});
               }
             }),
             "all ranks must make the same calls in the same order");
  check_said(error_of([&](Messages& messages) {
               std::vector<uint64_t> sizes(2, 7);
               sizes[messages.rank()] = 8;
               messages.exchange(std::vector<ConstBytes>(2, eight), sizes);
             }),
             "gives 8 bytes, rank");
  check_said(error_of([&](Messages& messages) {
               std::vector<ConstBytes> to(2);
               if (messages.rank() == 0) {
                 to[1] = eight;
               }
               messages.exchange(to, std::vector<uint64_t>(2, 0));
             }),
             "rank 0 gives 8 bytes, rank 1 expects 0 of it");
}

TEST_CASE("fabric messages: frames of another launch are dropped, and their number is said") {
  if (!libfabric_is_here()) {
    return;
  }
  const Board board(3);
  const auto children = start(board, [&](uint32_t rank) {
    const auto messages = join(board, rank, 2, nullptr, rank == 1 ? kToken + 1 : kToken);
    gather(*messages, 0, 8);
    return "done";
  });
  for (uint32_t r = 0; r < 3; ++r) {
    const std::string words = children[r].words();
    INFO(words);
    CHECK(words.find(r == 1 ? "ranks 0 and 2 did not take part" : "rank 1 did not take part") !=
          std::string::npos);
    CHECK(words.find("messages came with the token of another launch") != std::string::npos);
  }
}

TEST_CASE("fabric messages: an interrupt ends a wait, and the others hear who it was") {
  if (!libfabric_is_here()) {
    return;
  }
  const Board board(3);
  const auto children = start(board, [&](uint32_t rank) {
    const auto messages = join(board, rank);
    gather(*messages, 0, 8);
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
    } else if (rank == 0) {
      gear::base::interrupt_check = [] { throw std::runtime_error("Ctrl-C"); };
    }
    gather(*messages, 1, 8);
    return "done";
  });
  CHECK(children[0].words() == "Ctrl-C");
  for (const uint32_t r : {1u, 2u}) {
    CHECK(children[r].words().starts_with(
        gear::base::cat("[transport] rank 0 (pid ", children[0].pid, ") was interrupted in")));
  }
}

// Readers of pages: how far they have read, and those that end without a word as killed ranks do.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "described_rows.h"
#include "group/peers/read_board.h"
#include "transport/shared/shared_memory.h"

using namespace gear::group;
using namespace gear::testing;

namespace {

constexpr double kLong = 100;

std::shared_ptr<ReadBoard> make_board(const std::string& name, uint32_t rank, uint32_t size) {
  gear::store::ShardOptions options = options_of(64);
  options.owner = rank;
  const std::shared_ptr<gear::transport::Transport> control =
      gear::transport::make_shared_memory(name, rank, size, kLong);
  const Peers peers(std::make_shared<gear::store::Shard>(schema(), options), control,
                    std::vector<uint32_t>(size, 0), false);
  return std::make_shared<ReadBoard>(peers, 0, *control);
}

}  // namespace

TEST_CASE("a writer waits for no reader that has ended, however many they are") {
  constexpr uint32_t kRanks = 8;
  const std::string name = "test-read-board-" + std::to_string(::getpid());
  std::vector<pid_t> children;
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    children.push_back(::fork());
    REQUIRE(children.back() >= 0);
    if (children.back() == 0) {
      const auto board = make_board(name, rank, kRanks);
      for (;;) {
        ::pause();  // and reads for ever
      }
    }
  }
  const auto board = make_board(name, 0, kRanks);
  std::vector<uint32_t> readers;
  for (uint32_t rank = 1; rank < kRanks; ++rank) {
    readers.push_back(rank);
  }
  const ReadersEnd all(board, 5, readers);
  CHECK(!all.done());
  for (const pid_t child : children) {
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
  }
  const ReadersEnd later(board, 6, readers);
  int asked = 1;
  while (!later.done() && asked < 1000) {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(asked < 1000);
  CHECK(all.done());  // without another look
}

TEST_CASE("a reader is done with a batch once it has passed it, not when it comes to it") {
  const std::string name = "test-read-board-one-" + std::to_string(::getpid());
  const auto board = make_board(name, 0, 1);
  const ReadersEnd end(board, 5, {0});
  for (const uint64_t below : {0, 4, 5}) {
    board->passed(below);
    CHECK(!end.done());
  }
  board->passed(6);
  CHECK(end.done());
  board->passed(3);  // never backwards
  CHECK(end.done());
}

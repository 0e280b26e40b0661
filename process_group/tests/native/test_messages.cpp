#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/message.h"
#include "schedule/collectives.h"
#include "stepped_ranks.h"

// Messages between two ranks of a group, stepped by hand.

using namespace gear::process_group;
using gear::process_group::testing::kTimeoutS;
using gear::process_group::testing::SteppedRanks;

namespace {

using Bytes = std::vector<uint8_t>;

std::shared_ptr<Call> begin(SteppedRanks& ranks, int rank, Kind kind, Bytes& bytes, int peer,
                            int tag = 0) {
  return ranks.submit(rank, [&] {
    const Block block{reinterpret_cast<std::byte*>(bytes.data()), bytes.size()};
    return std::make_shared<Message>(ranks.rings[static_cast<size_t>(rank)],
                                     Letter{kind, block, peer, tag}, kTimeoutS);
  });
}

}  // namespace

TEST_CASE("messages of any length come, with the tags that they have") {
  for (const size_t length : {0U, 1U, 64U, 100'000U}) {
    SteppedRanks ranks(2, 5);
    Bytes one(length, 1);
    Bytes two(length, 2);
    Bytes to_one(length);
    Bytes to_two(length);
    // The receives stand in the other order.
    const std::vector<std::shared_ptr<Call>> calls{begin(ranks, 0, Kind::kSend, one, 1, 1),
                                                   begin(ranks, 0, Kind::kSend, two, 1, 2),
                                                   begin(ranks, 1, Kind::kReceive, to_two, 0, 2),
                                                   begin(ranks, 1, Kind::kReceive, to_one, 0, 1)};
    REQUIRE(ranks.finish(calls));
    CHECK(to_one == one);
    CHECK(to_two == two);
    CHECK(calls[2]->source() == 0);
  }
}

TEST_CASE("receives that may take the same message take them in the order in which they stand") {
  SteppedRanks ranks(3, 5);
  std::vector<Bytes> sent{{1}, {2}, {3}};
  std::vector<Bytes> got(3, Bytes(1));
  std::vector<std::shared_ptr<Call>> calls;
  for (Bytes& to : got) {
    calls.push_back(begin(ranks, 0, Kind::kReceive, to, Wire::kAnyone));
  }
  for (Bytes& from : sent) {
    calls.push_back(begin(ranks, 2, Kind::kSend, from, 0));
  }
  REQUIRE(ranks.finish(calls));
  CHECK(got == sent);
  CHECK(calls[0]->source() == 2);
}

TEST_CASE("a message of another length is refused, and the group goes on") {
  SteppedRanks ranks(2);
  Bytes few(10, 1);
  Bytes room(64, 7);
  const auto send = begin(ranks, 0, Kind::kSend, few, 1, 4);
  const auto receive = begin(ranks, 1, Kind::kReceive, room, 0, 4);
  REQUIRE(ranks.finish({send, receive}));
  CHECK(receive->failure ==
        "[mpi] recv of 64 bytes with tag 4: rank 0 sent 10; give a tensor of the size and dtype "
        "that is sent");
  CHECK(room == Bytes(64, 7));
  CHECK(send->failure == "");
  Bytes again(10);
  const std::vector<std::shared_ptr<Call>> calls{begin(ranks, 0, Kind::kSend, few, 1),
                                                 begin(ranks, 1, Kind::kReceive, again, 0)};
  REQUIRE(ranks.finish(calls));
  CHECK(again == few);
}

TEST_CASE("a message that nobody sends or receives is told after its time") {
  SteppedRanks ranks(2);
  Bytes bytes(1000);
  const auto receive = begin(ranks, 1, Kind::kReceive, bytes, 0, 3);
  REQUIRE(ranks.finish({receive}));
  CHECK(receive->failure ==
        "[mpi] rank 0 has not sent rank 1 a message with tag 3 within 10 s: look at the output of "
        "that rank");
  const auto of_any = begin(ranks, 1, Kind::kReceive, bytes, Wire::kAnyone, 3);
  REQUIRE(ranks.finish({of_any}));
  CHECK(of_any->failure ==
        "[mpi] no rank has sent rank 1 a message with tag 3 within 10 s: look at the output of all "
        "ranks");
  const auto send = begin(ranks, 0, Kind::kSend, bytes, 1, 5);
  REQUIRE(ranks.finish({send}));
  CHECK(send->failure ==
        "[mpi] rank 1 has not received what rank 0 sends with tag 5 within 10 s: look at the "
        "output of that rank");
}

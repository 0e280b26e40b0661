// Whether ranks may draw, and what they offer, in one message.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "described_rows.h"
#include "group/agreement.h"
#include "ranks.h"
#include "store/id.h"
#include "transport/loopback.h"

using namespace gear::group;
using namespace gear::testing;
using gear::transport::Transport;

namespace {

using Round = Agreement::Round;

// One rank, with `episodes` of one step; it offers 100 + its rank + 10 for every offer before.
struct Offering {
  Offering(Transport& control, uint64_t episodes)
      : transport(control.duplicate()),
        shard(std::make_shared<gear::store::Shard>(schema(), of_rank(control.rank()))),
        peers(shard, std::shared_ptr<Transport>(control.duplicate()),
              std::vector<uint32_t>(control.size(), 0), false),
        agreement(peers, {}, *transport) {
    gear::store::Writer writer(shard);
    for (uint64_t e = 1; e <= episodes; ++e) {
      add_episode(writer, e, 1);
    }
  }

  static gear::store::ShardOptions of_rank(uint32_t rank) {
    gear::store::ShardOptions options = options_of(16);
    options.owner = rank;
    return options;
  }

  Round agree(const Agreement::Terms& terms) {
    return agreement.agree(
        terms, sizeof(uint64_t),
        [&](gear::store::Index&, std::span<std::byte> out) {
          if (fails) {
            throw std::bad_alloc();
          }
          const uint64_t offer = 100 + peers.rank() + 10 * made++;
          std::memcpy(out.data(), &offer, sizeof offer);
        },
        offers);
  }

  std::vector<uint64_t> offered() const {
    std::vector<uint64_t> all(peers.size());
    expect(offers.size() == all.size() * sizeof(uint64_t), "not one offer of every rank");
    std::memcpy(all.data(), offers.data(), offers.size());
    return all;
  }

  // Throws in the thread whose draw is out.
  void expect_no_draw_is_out() { shard->lock_between_draws(); }

  std::unique_ptr<Transport> transport;
  std::shared_ptr<gear::store::Shard> shard;
  Peers peers;
  Agreement agreement;
  std::vector<std::byte> offers;
  uint64_t made = 0;
  bool fails = false;
};

void on_ranks(uint32_t size, uint64_t episodes, const std::function<void(Offering&)>& body) {
  auto ranks = gear::transport::make_loopback(size, 200);
  for (const std::string& error : errors_of(ranks, [&](Transport& control) {
         Offering rank(control, episodes);
         body(rank);
       })) {
    CHECK(error == "");
  }
}

}  // namespace

TEST_CASE("agreement: all offers reach all ranks, and the draw is out until it is ended") {
  on_ranks(3, 1, [](Offering& rank) {
    expect(rank.agree({true, false}) == Round::kDrawn, "not drawn");
    expect(rank.offered() == std::vector<uint64_t>{100, 101, 102}, "other offers");
    bool out = false;
    try {
      rank.expect_no_draw_is_out();
    } catch (const gear::base::InvalidArgument&) {
      out = true;
    }
    expect(out, "no draw is out");
    {
      const EndDraw end(*rank.shard);
    }
    rank.expect_no_draw_is_out();
  });
}

TEST_CASE("agreement: betas that differ are named on every rank, and draw nothing") {
  on_ranks(3, 1, [](Offering& rank) {
    std::string words;
    try {
      rank.agree(
          {.allowed = true, .out_of_time = false, .beta = rank.peers.rank() == 2 ? 1.0 : 0.5});
    } catch (const gear::base::InvalidArgument& error) {
      words = error.what();
    }
    expect(words.find("beta of the loader on rank 2 is 1, on rank 0 0.5") != std::string::npos,
           words.c_str());
    rank.expect_no_draw_is_out();
    expect(rank.agree({.allowed = true, .out_of_time = false, .beta = 1.0}) == Round::kDrawn,
           "not drawn with the same");
    const EndDraw end(*rank.shard);
  });
}

TEST_CASE("agreement: kept updates reach their owners before the offers that count") {
  on_ranks(3, 1, [](Offering& rank) {
    if (rank.peers.rank() == 2) {  // where rank 0's first step lies, too
      auto id =
          gear::store::StepId::unpack(rank.shard->index().id({0, 0}, gear::store::Unit::kStep));
      id.owner = 0;
      const int64_t packed = id.pack();
      const float priority = 50;
      rank.peers.outbox().update({&packed, 1}, {&priority, 1});
    }
    expect(rank.agree({true, false}) == Round::kDrawn, "not drawn");
    const EndDraw end(*rank.shard);
    expect(rank.made == 2, "offered once");
    expect(rank.offered() == std::vector<uint64_t>{110, 111, 112}, "the offers before the updates");
    expect(rank.peers.outbox().num_kept() == 0, "an update was kept");
    expect(rank.shard->index().state().max_priority == 50, "another largest priority");
  });
}

TEST_CASE("agreement: no draw is out where one is not allowed, or none has anything") {
  on_ranks(2, 1, [](Offering& rank) {
    const bool held = rank.peers.rank() == 1;
    expect(rank.agree({!held, false}) == Round::kNotAllowed, "allowed");
    rank.expect_no_draw_is_out();
    expect(rank.agree({!held, !held}) == Round::kOutOfTime, "in time");
    rank.expect_no_draw_is_out();
    expect(rank.agree({true, false}) == Round::kDrawn, "not drawn");
    const EndDraw end(*rank.shard);
  });
  on_ranks(2, 0, [](Offering& rank) {
    expect(rank.agree({true, false}) == Round::kNothing, "something");
    rank.expect_no_draw_is_out();
  });
}

TEST_CASE("agreement: an offer that a rank has no memory for is told to all, and all go on") {
  on_ranks(3, 1, [](Offering& rank) {
    rank.fails = rank.peers.rank() == 1;
    std::string said;
    try {
      rank.agree({true, false});
    } catch (const std::bad_alloc&) {
      said = "no memory here";
    } catch (const gear::base::OutOfMemory& error) {
      said = error.what();
    }
    expect(rank.fails ? said == "no memory here"
                      : said.find("rank 1 has no memory for a batch") != std::string::npos,
           "another error");
    rank.expect_no_draw_is_out();
    rank.fails = false;
    expect(rank.agree({true, false}) == Round::kDrawn, "not drawn");
    const EndDraw end(*rank.shard);
  });
}

// A rank that dies in any exchange of a draw is named by the others: every exchange in turn, with
// ranks that are processes.
#include <doctest/doctest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drawing_rank.h"
#include "forked_ranks.h"
#include "store/id.h"
#include "transport/one_sided/forwarding.h"
#include "transport/shared/shared_memory.h"

using namespace gear::group;
using namespace gear::testing;
using gear::select::Policy;
using gear::store::Unit;
using gear::transport::Bytes;
using gear::transport::ConstBytes;
using gear::transport::Forwarding;
using gear::transport::Transport;

namespace {

constexpr double kLong = 200;
constexpr uint32_t kRanks = 3;
constexpr RankSizes kSizes{40, 60, 4};  // more items than fit one round of a search for the cut

/// The exchanges of a rank, by letters, and the number of the one that it dies before.
struct Fate {
  std::string past;
  size_t end;
  bool armed = false;

  void meet(char letter) {
    if (armed && past.size() == end) {
      ::kill(::getpid(), SIGKILL);
    }
    past += armed ? std::string(1, letter) : "";
  }
};

class Mortal final : public Forwarding {
 public:
  Mortal(std::unique_ptr<Transport> inner, Fate& fate)
      : Forwarding(*inner), owned_(std::move(inner)), fate_(fate) {}

  void allgather(ConstBytes mine, Bytes all) override {
    fate_.meet('g');
    inner_.allgather(mine, all);
  }
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    fate_.meet('x');
    return inner_.exchange(to, sizes);
  }
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override {
    fate_.meet('s');
    return inner_.exchange_sparse(to, from);
  }
  std::unique_ptr<Transport> duplicate() override {
    return std::make_unique<Mortal>(inner_.duplicate(), fate_);
  }

 private:
  std::unique_ptr<Transport> owned_;
  Fate& fate_;
};

struct Case {
  const char* name;
  Policy policy;
  const char* exchanges;  // one draw's, and those of its parcels
  Locality locality = Locality::kFirst;
  bool priorities = false;  // of other ranks' steps
  int draws = 1;
};

// Offers; priorities, and offers again; a round of the search for the cut, or counts; keys;
// parcels. Where there were priorities before a draw, those of the next come before its offers.
const Case kCases[] = {
    {"uniform", Policy::kUniform,
     "g"
     "g"
     "s"},
    {"weighted", Policy::kWeighted,
     "g"
     "g"
     "s"},
    {"weighted, priorities", Policy::kWeighted,
     "g"
     "xg"
     "g"
     "s",
     Locality::kFirst, true},
    {"weighted, priorities each time", Policy::kWeighted,
     "g"
     "xg"
     "g"
     "s"
     "x"
     "g"
     "g"
     "s",
     Locality::kFirst, true, 2},
    {"epochs", Policy::kSequential,
     "g"
     "g"
     "s"},
    {"fifo", Policy::kFifo,
     "g"
     "g"
     "s"},
    {"lifo", Policy::kLifo,
     "g"
     "g"
     "s"},
    {"topk", Policy::kTopK,
     "g"
     "g"
     "s"},
    {"topk, off", Policy::kTopK,
     "g"
     "g"
     "x"
     "s",
     Locality::kOff},
    {"topk, priorities", Policy::kTopK,
     "g"
     "xg"
     "g"
     "s",
     Locality::kFirst, true},
};

void update_others(Rank& rank, uint32_t own) {
  auto id = gear::store::StepId::unpack(rank.shard->index().id({0, 0}, Unit::kStep));
  id.owner = (own + 1) % kRanks;
  const int64_t packed = id.pack();
  const float priority = 50;
  rank.peers->outbox().update({&packed, 1}, {&priority, 1});
}

// What a rank passed through.
std::string draw(const std::string& name, uint32_t rank, const Case& one, size_t end) {
  Fate fate{{}, end};
  Mortal control(gear::transport::make_shared_memory(name, rank, kRanks, kLong), fate);
  Rank drawing(control, {one.policy}, kSizes, one.locality);
  fate.armed = true;
  for (int n = 0; n < one.draws; ++n) {
    if (one.priorities) {
      update_others(drawing, rank);
    }
    DrawnBatch drawn;
    gear::deliver::TakenBatch taken;
    expect(drawing.draws->draw({true, false}, drawn, taken) == GlobalDraw::Round::kDrawn,
           "nothing drawn");
    taken.deliver();
    exchange_parcels(control, drawn);
    drawn.read.end();
  }
  return fate.past;
}

}  // namespace

TEST_CASE("a rank that dies in any exchange of a draw is named by the others") {
  const std::string name = shared_name_of("rank-ends");
  for (const Case& one : kCases) {
    const std::string law = one.name;
    CAPTURE(law);
    constexpr size_t kNever = SIZE_MAX;
    const std::string exchanges(one.exchanges);
    for (const Child& child :
         start_ranks(kRanks, [&](uint32_t rank) { return draw(name, rank, one, kNever); })) {
      CHECK(child.words() == exchanges);
    }
    for (size_t end = 0; end < exchanges.size(); ++end) {
      CAPTURE(end);
      const uint32_t who = end % kRanks;
      const auto children = start_ranks(
          kRanks, [&](uint32_t rank) { return draw(name, rank, one, rank == who ? end : kNever); });
      const std::string want =
          gear::base::cat("[transport] rank ", who, " (pid ", children[who].pid, ") has ended: ");
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        const std::string words = children[rank].words();
        CAPTURE(words);
        CHECK((rank == who ? words == "" : words.rfind(want, 0) == 0));
      }
    }
  }
}

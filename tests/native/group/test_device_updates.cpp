#include <doctest/doctest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "described_rows.h"
#include "group/agreement.h"
#include "group/peers/peers.h"
#include "ranks.h"
#include "transport/loopback.h"

using namespace gear;
using gear::testing::expect;

namespace {

// What a GPU would keep, in memory of the host.
class Kept final : public group::DeviceUpdates {
 public:
  void keep(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
            uintptr_t) override {
    expect(!on_device, "arrays of the host are told as such");
    ids_.insert(ids_.end(), ids, ids + count);
    priorities_.insert(priorities_.end(), priorities, priorities + count);
  }
  bool has_room() const override { return true; }
  uint64_t kept() const override { return claimed > 0 ? claimed : ids_.size(); }
  void take(std::vector<int64_t>& ids, std::vector<float>& priorities) override {
    if (lost) {
      throw base::CudaError("the GPU is lost");
    }
    ids.insert(ids.end(), ids_.begin(), ids_.end());
    priorities.insert(priorities.end(), priorities_.begin(), priorities_.end());
    ids_.clear();
    priorities_.clear();
  }
  void raise_failed() override {
    if (failed) {
      failed = false;
      throw base::InvalidArgument("an update before was wrong");
    }
  }

  bool failed = false;
  bool lost = false;
  uint64_t claimed = 0;  // to be kept, where that is more than one would want to make

 private:
  std::vector<int64_t> ids_;
  std::vector<float> priorities_;
};

struct Rank {
  explicit Rank(transport::Transport& control) {
    store::ShardOptions options = testing::options_of(64);
    options.owner = control.rank();
    shard = std::make_shared<store::Shard>(testing::schema(), options);
    store::Writer writer(shard);
    testing::add_episode(writer, control.rank(), 10);
    peers = std::make_unique<group::Peers>(
        shard, std::shared_ptr<transport::Transport>(control.duplicate()),
        std::vector<uint32_t>(control.size(), 0), false);
  }

  // Where a step of the only episode is, on every rank alike.
  store::Anchor place(uint32_t step) const {
    uint32_t page = shard->index().episode(0).head;
    for (uint32_t first = 4; first <= step; first += 4) {
      page = shard->index().page(page).next;
    }
    return {page, step % 4};
  }
  void update(uint32_t owner, uint32_t step, float priority) {
    auto id = store::StepId::unpack(shard->index().id(place(step), store::Unit::kStep));
    id.owner = owner;
    const int64_t packed = id.pack();
    peers->outbox().update({&packed, 1}, {&priority, 1});
  }
  float priority(uint32_t step) const { return shard->index().priority(place(step)); }

  std::shared_ptr<store::Shard> shard;
  std::unique_ptr<group::Peers> peers;
};

}  // namespace

TEST_CASE("what a GPU keeps has what was kept before, and the host takes all of it back") {
  auto ranks = transport::make_loopback(2, 200);
  const auto errors = testing::errors_of(ranks, [](transport::Transport& control) {
    Rank rank(control);
    const auto own = static_cast<float>(control.rank() + 1);
    rank.update(0, 3, 10 * own);
    rank.update(1, 4, 20 * own);
    const auto kept = std::make_shared<Kept>();
    rank.peers->outbox().set_device_updates(kept);
    expect(kept->kept() == 2, "what was kept before moves");
    rank.update(0, 3, 30 * own);
    rank.update(1, 5, 40 * own);
    expect(kept->kept() == 4, "it keeps what comes");
    expect(rank.peers->outbox().num_kept() == 4, "and is counted");
    rank.peers->outbox().exchange(control);
    expect(rank.peers->outbox().num_kept() == 0, "all of it was told");
    if (control.rank() == 0) {
      expect(rank.priority(3) == 60, "of the last rank's last call");
    } else {
      expect(rank.priority(4) == 40, "of the last rank");
      expect(rank.priority(5) == 80, "of the last rank");
    }
  });
  CHECK(errors[0] == "");
  CHECK(errors[1] == "");
}

TEST_CASE("a GPU that is lost before a batch is told to the ranks that would wait for it") {
  auto ranks = transport::make_loopback(3, 200);
  const auto errors = testing::errors_of(ranks, [](transport::Transport& control) {
    Rank rank(control);
    const auto kept = std::make_shared<Kept>();
    rank.update(1, 4, 20);
    rank.peers->outbox().set_device_updates(kept);
    kept->lost = control.rank() == 1;
    group::Agreement agreement(*rank.peers, {}, control);
    std::vector<std::byte> offers;
    agreement.agree({true, false}, 0, [](store::Index&, std::span<std::byte>) {}, offers);
  });
  const std::string told = "[loader] rank 1 failed before a batch, so that none is drawn";
  CHECK(errors[0].starts_with(told));
  CHECK(errors[1] == "the GPU is lost");
  CHECK(errors[2].starts_with(told));
}

TEST_CASE("an update raises what a GPU found wrong of one before, and keeps to the bound") {
  auto ranks = transport::make_loopback(1, 200);
  Rank rank(*ranks[0]);
  const auto kept = std::make_shared<Kept>();
  rank.peers->outbox().set_device_updates(kept);
  kept->failed = true;
  CHECK_THROWS_WITH_AS(rank.update(0, 1, 2.0F), "an update before was wrong",
                       base::InvalidArgument);
  CHECK(kept->kept() == 0);
  rank.update(0, 1, 2.0F);
  CHECK(kept->kept() == 1);
  CHECK_THROWS_AS(rank.update(0, 1, -2.0F), base::InvalidArgument);
  kept->claimed = group::Outbox::kLeastKept + 2 * 64;
  CHECK_THROWS_AS(rank.update(0, 1, 2.0F), base::OutOfMemory);
}

// What a group refuses in a sentence: more ranks, or draws, than its numbers can name; more
// priorities than are kept for others; a batch that a rank has no memory for.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "described_rows.h"
#include "expect_message.h"
#include "group/global_draw.h"
#include "group/group_source.h"
#include "ranks.h"
#include "transport/loopback.h"

using namespace gear::group;
using namespace gear::testing;

namespace {

std::shared_ptr<gear::store::Shard> small_shard() {
  return std::make_shared<gear::store::Shard>(schema(), options_of(64));
}

}  // namespace

TEST_CASE("a buffer over more ranks than an id can name is refused") {
  constexpr uint32_t kMost = 4096;
  auto ranks = gear::transport::make_loopback(kMost + 1, 1);
  const std::shared_ptr<gear::transport::Transport> control = std::move(ranks[0]);
  expect_message<gear::base::InvalidArgument>(
      [&] { Peers(small_shard(), control, std::vector<uint32_t>(kMost + 1, 0), false); },
      "[group] a buffer over 4097 ranks: at most 4096");
  const auto shard = small_shard();
  expect_message<gear::base::InvalidArgument>(
      [&] { gear::select::GroupSampler({}, shard->index(), 0, kMost + 1); },
      "[sampler] draws over 4097 ranks: 4096 at most");
}

TEST_CASE("a batch of more draws than 32 bits can number is refused") {
  auto ranks = gear::transport::make_loopback(1, 1);
  const std::shared_ptr<gear::transport::Transport> control = std::move(ranks[0]);
  Peers peers(small_shard(), control, {0}, false);
  gear::deliver::LoaderOptions options;
  options.outputs = windows();
  const auto layout =
      std::make_shared<gear::plan::BatchLayout>(peers.shard().schema(), options.outputs, 8, false);
  const auto make = [&](uint64_t batch_size) {
    options.batch_size = batch_size;
    GlobalDraw(peers, options, Locality::kFirst, layout, {1}, *control);
  };
  make(UINT32_MAX);
  expect_message<gear::base::InvalidArgument>([&] { make(uint64_t{1} << 32); },
                                              "[loader] batch_size 4294967296 on each of 1 ranks",
                                              "lower batch_size to 4294967295");
  expect_message<gear::base::InvalidArgument>([&] { make(uint64_t{1} << 63); },
                                              "[loader] batch_size");
}

TEST_CASE("priorities that no rank exchanges are kept up to a bound") {
  constexpr uint64_t kCapacity = 64;
  auto ranks = gear::transport::make_loopback(1, 1);
  const std::shared_ptr<gear::transport::Transport> control = std::move(ranks[0]);
  const auto shard = small_shard();
  gear::store::Writer writer(shard);
  add_episode(writer, 1, 1);
  Peers peers(shard, control, {0}, false);
  const uint64_t most = Outbox::kLeastKept + 2 * kCapacity;
  const std::vector<int64_t> ids(most, shard->index().id({0, 0}, gear::store::Unit::kStep));
  const std::vector<float> priorities(most, 2.0F);
  const auto update = [&](uint64_t count) {
    peers.outbox().update({ids.data(), count}, {priorities.data(), count});
  };
  update(most - 1);
  expect_message<gear::base::OutOfMemory>([&] { update(2); }, "[group] 2 more priorities",
                                          std::to_string(most) + " at most");
  CHECK(peers.outbox().num_kept() == most - 1);
  update(1);
  CHECK_THROWS_AS(update(1), gear::base::OutOfMemory);
  peers.outbox().exchange(*control);
  CHECK(peers.outbox().num_kept() == 0);
  update(most);
}

namespace {

// Room for so many bytes more in the address space of the process, as long as this lives.
class AddressSpace {
 public:
  explicit AddressSpace(uint64_t bytes) {
    ::getrlimit(RLIMIT_AS, &former_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = former_;
    limit.rlim_cur = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressSpace() { ::setrlimit(RLIMIT_AS, &former_); }
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

 private:
  rlimit former_{};
};

}  // namespace

TEST_CASE("where a rank has no memory for a batch none is drawn, and nothing is lost") {
  constexpr uint64_t kSteps = 16;  // a rank
  constexpr uint64_t kBatch = 4;
  constexpr int64_t kWindow = 1 << 17;  // of 64 bytes each: a block of 32 MiB
  auto ranks = gear::transport::make_loopback(2, 200);
  std::vector<std::vector<int64_t>> delivered(2);
  std::vector<std::string> refused(2);
  std::unique_ptr<AddressSpace> limit;
  std::barrier together(2);
  const auto errors = errors_of(ranks, [&](gear::transport::Transport& control) {
    const uint32_t rank = control.rank();
    gear::store::ShardOptions options = options_of(kSteps);
    options.owner = rank;
    options.max_times_sampled = 1;
    const auto shard = std::make_shared<gear::store::Shard>(schema(), options);
    gear::store::Writer writer(shard);
    add_episode(writer, rank, kSteps);
    const auto peers = std::make_shared<Peers>(
        shard, std::shared_ptr<gear::transport::Transport>(control.duplicate()),
        std::vector<uint32_t>(2, 0), false);
    gear::deliver::LoaderOptions loader;
    loader.outputs = {{"row", 0, 0, kWindow}};
    loader.batch_size = kBatch;
    loader.prefetch = 0;
    loader.sampler.policy = gear::select::Policy::kFifo;
    const auto pipeline = make_pipeline(peers, {peers->shard(), loader}, {});
    std::vector<gear::plan::Batch> kept;
    const auto next = [&] {
      gear::plan::Batch batch;
      expect(pipeline->next(60.0, batch) == gear::deliver::Pipeline::Next::kBatch, "no batch");
      const int64_t* ids = batch.at<int64_t>(batch.layout->ids);
      delivered[rank].insert(delivered[rank].end(), ids, ids + batch.items);
      if (rank == 0) {
        kept.push_back(std::move(batch));  // so that the next one takes memory
      }
    };
    next();
    together.arrive_and_wait();
    if (rank == 0) {
      limit = std::make_unique<AddressSpace>(8 << 20);
    }
    together.arrive_and_wait();
    try {
      next();
    } catch (const gear::base::OutOfMemory& error) {
      refused[rank] = error.what();
    }
    together.arrive_and_wait();
    if (rank == 0) {
      limit.reset();
    }
    together.arrive_and_wait();
    for (uint64_t batch = 1; batch < kSteps / kBatch; ++batch) {
      next();
    }
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(refused[0].find("Cannot allocate memory") != std::string::npos);
  CHECK(refused[1].find("rank 0 has no memory for a batch") != std::string::npos);
  delivered[0].insert(delivered[0].end(), delivered[1].begin(), delivered[1].end());
  std::ranges::sort(delivered[0]);
  CHECK(delivered[0].size() == 2 * kSteps);
  CHECK(std::ranges::adjacent_find(delivered[0]) == delivered[0].end());
}

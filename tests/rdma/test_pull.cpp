// Rows pulled by RDMA out of the shard of a process that is stopped.
#include <unistd.h>

#include <chrono>

#include "described_rows.h"
#include "group/pull/pull_source.h"
#include "rank_process.h"
#include "transport/shared/shared_memory.h"
#include "transport/verbs.h"

using namespace gear::testing;
using gear::deliver::Pipeline;
using gear::plan::Batch;

namespace {

constexpr double kTimeout = 60;

// One of two ranks, each with 100 episodes of 40 steps in memory that nobody maps.
struct End {
  End(const std::string& name, uint32_t rank)
      : shard(std::make_shared<gear::store::Shard>(schema(), options(rank))) {
    gear::store::Writer writer(shard);
    for (uint64_t episode = 0; episode < 100; ++episode) {
      add_episode(writer, 1000 * rank + episode, 40);
    }
    peers = std::make_shared<gear::group::Peers>(
        shard,
        std::shared_ptr<gear::transport::Transport>(gear::transport::make_verbs(
            gear::transport::make_shared_memory(name, rank, 2, kTimeout), {})),
        std::vector<uint32_t>(2, 0), false);
    published = std::make_shared<gear::group::PublishedShards>(*peers);
  }

  static gear::store::ShardOptions options(uint32_t rank) {
    gear::store::ShardOptions options = options_of(8000);
    options.owner = rank;
    return options;
  }

  std::shared_ptr<gear::store::Shard> shard;
  std::shared_ptr<gear::group::Peers> peers;
  std::shared_ptr<gear::group::PublishedShards> published;
};

}  // namespace

TEST_CASE("rdma: 20,000 items pulled from two shards, the other rank's stopped") {
  const std::string name = gear::base::cat("test-rdma-pull-", ::getpid());
  RankProcess owner([&] {
    const End end(name, 1);
    for (;;) {
      ::pause();
    }
  });
  const End end(name, 0);
  owner.signal(SIGSTOP);
  owner.wait_stopped();
  gear::deliver::LoaderOptions options;
  options.outputs = windows();
  options.batch_size = 1000;
  const auto loader = gear::group::make_pull_pipeline(end.peers, end.published, options);
  const auto start = std::chrono::steady_clock::now();
  uint64_t wrong = 0;
  for (int number = 0; number < 20; ++number) {
    Batch batch;
    REQUIRE(loader->next(kTimeout, batch) == Pipeline::Next::kBatch);
    CHECK(batch.items == 1000);
    wrong += wrong_rows(batch);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(wrong == 0);
  CHECK(owner.state() == "T");
  const gear::deliver::Stats stats = loader->stats();
  CHECK(stats.repeated == 0);
  CHECK(stats.one_sided_bytes > 0);
  MESSAGE("20000 items, ", stats.one_sided_bytes, " bytes of them by RDMA, in ", took.count(),
          " s");
}

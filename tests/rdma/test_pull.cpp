// Rows pulled by RDMA out of the shard of a process that is stopped.
#include <unistd.h>

#include <chrono>

#include "published_rank.h"
#include "rank_process.h"
#include "transport/shared/shared_memory.h"
#include "transport/verbs.h"

using namespace gear::testing;
using namespace gear::transport;

TEST_CASE("rdma: 20,000 items pulled from two shards, the other rank's stopped") {
  const std::string name = gear::base::cat("test-rdma-pull-", ::getpid());
  const auto make = [&](uint32_t rank) {
    return PublishedRank(make_verbs(make_shared_memory(name, rank, 2, 60), {}));
  };
  RankProcess owner([&] {
    const PublishedRank there = make(1);
    for (;;) {
      ::pause();
    }
  });
  const PublishedRank here = make(0);
  owner.signal(SIGSTOP);
  owner.wait_stopped();
  const auto start = std::chrono::steady_clock::now();
  const auto [wrong, stats] = here.pull(20);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(wrong == 0);
  CHECK(owner.state() == "T");
  CHECK(stats.repeated == 0);
  CHECK(stats.one_sided_bytes > 0);
  MESSAGE("20000 items, ", stats.one_sided_bytes, " bytes of them by RDMA, in ", took.count(),
          " s");
}

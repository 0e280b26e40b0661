#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "described_rows.h"
#include "group/pull/pull_source.h"

namespace gear::testing {

/// One of two ranks, each with 100 episodes of 40 steps in memory that nobody maps, published.
struct PublishedRank {
  /// Collective.
  explicit PublishedRank(std::shared_ptr<transport::Transport> transport)
      : shard(std::make_shared<store::Shard>(schema(), options(transport->rank()))) {
    store::Writer writer(shard);
    for (uint64_t episode = 0; episode < 100; ++episode) {
      add_episode(writer, 1000 * transport->rank() + episode, 40);
    }
    peers = std::make_shared<group::Peers>(shard, std::move(transport), std::vector<uint32_t>(2, 0),
                                           false);
    published = std::make_shared<group::PublishedShards>(*peers);
  }

  /// Pulls so many batches of 1000 items; the number of rows that are wrong, and what was counted.
  std::pair<uint64_t, deliver::Stats> pull(int batches) const {
    deliver::LoaderOptions options;
    options.outputs = windows();
    options.batch_size = 1000;
    const auto loader = group::make_pull_pipeline(peers, published, {peers->shard(), options});
    uint64_t wrong = 0;
    for (int number = 0; number < batches; ++number) {
      plan::Batch batch;
      REQUIRE(loader->next(peers->control().timeout_s(), batch) == deliver::Pipeline::Next::kBatch);
      CHECK(batch.items == 1000);
      wrong += wrong_rows(batch);
    }
    return {wrong, loader->stats()};
  }

  static store::ShardOptions options(uint32_t rank) {
    store::ShardOptions options = options_of(8000);
    options.owner = rank;
    return options;
  }

  std::shared_ptr<store::Shard> shard;
  std::shared_ptr<group::Peers> peers;
  std::shared_ptr<group::PublishedShards> published;
};

}  // namespace gear::testing

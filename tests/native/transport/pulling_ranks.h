#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "group/pull/pull_source.h"
#include "transport/one_sided_kinds.h"

/// Ranks that pull from one another, by every way that they can.
namespace gear::testing {

/// How ranks reach one another's shards: a transport that reads one-sided, or memory they map.
struct PullKind {
  const char* name;
  Ranks (*make)(uint32_t size, double timeout_s);
  bool mapped;
  bool by_kernel;
};

inline std::vector<PullKind> pull_kinds() {
  std::vector<PullKind> kinds;
  if (!on_a_device()) {
    kinds.push_back(
        {"mapped",
         [](uint32_t size, double timeout_s) { return transport::make_loopback(size, timeout_s); },
         true, false});
  }
#if GEAR_VERBS
  kinds.push_back({"verbs",
                   [](uint32_t size, double timeout_s) {
                     return make_verbs_ranks(size, timeout_s, {uint64_t{1} << 30, 4, nullptr});
                   },
                   false, false});
#endif
#if GEAR_FABRIC
  if (!on_a_device()) {
    kinds.push_back(
        {"fabric",
         [](uint32_t size, double timeout_s) {
           return open_ranks(size, timeout_s, [](std::shared_ptr<transport::Transport> messages) {
             return transport::make_fabric(std::move(messages), {uint64_t{1} << 30, nullptr});
           });
         },
         false, true});
  }
#endif
  return kinds;
}

/// The options of a shard that ranks of this kind can pull from.
inline store::ShardOptions reachable(store::ShardOptions options, const PullKind& kind,
                                     uint32_t rank) {
  static std::atomic<int> number{0};
  options.owner = rank;
  if (kind.mapped) {
    options.tier = memory::Tier::kShared;
    options.name = base::cat("test-pull-", ::getpid(), "-", number++);
  }
  return options;
}

/// A rank of a buffer that publishes. Collective.
struct PullingRank {
  PullingRank(transport::Transport& transport, std::shared_ptr<store::Shard> own)
      : shard(std::move(own)),
        peers(std::make_shared<group::Peers>(
            shard, std::shared_ptr<transport::Transport>(transport.duplicate()),
            nodes_of(transport.size()), false)),
        published(std::make_shared<group::PublishedShards>(*peers)) {}

  std::unique_ptr<deliver::Pipeline> pull(const deliver::LoaderOptions& options) const {
    return group::make_pull_pipeline(peers, published, {peers->shard(), options});
  }

  std::shared_ptr<store::Shard> shard;
  std::shared_ptr<group::Peers> peers;
  std::shared_ptr<group::PublishedShards> published;
};

}  // namespace gear::testing

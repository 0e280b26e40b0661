#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/region.h"
#include "transport/failure.h"
#include "transport/remote_memory.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registered_memory.h"

namespace gear::transport::verbs {

/// What a rank exposes, as the others see it.
struct ExposedShard {
  PortAddress port;
  ChunkedMemory memory;
};

/// Reads by chains of RDMA READs, of which the last one of each is signalled:
///
///     queue pair 0 of rank 1   [read → read → ... → read*]   [read → ... → read*]
///     queue pair 1 of rank 1   [read → ... → read*]               * one completion a chain
///     queue pair 0 of rank 2   ...
///
/// into registered memory of its own, which grows with what is asked for.
class VerbsReader final : public RemoteReader {
 public:
  static constexpr uint32_t kChain = 32;   ///< reads
  static constexpr uint32_t kDepth = 256;  ///< reads of a queue pair that are under way at most

  struct Options {
    uint32_t rank = 0;
    uint32_t queue_pairs = 1;  ///< to every other rank
    double timeout_s = 300;
    uint64_t chunk_bytes = 0;  ///< of its registered memory
    std::shared_ptr<Failure> failure;
  };

  /// `shards` by rank. connect() comes before the first read.
  VerbsReader(std::shared_ptr<const VerbsPort> port, std::vector<ExposedShard> shards,
              Options options);

  /// Of the own ends, rank by rank: options.queue_pairs for each, the own rank too.
  std::vector<QueuePairAddress> addresses() const;
  /// `others`: what each rank gives for this one, rank by rank. Throws TransportError.
  void connect(std::span<const QueuePairAddress> others);

  ConstBytes read(std::span<const RemoteRead> reads, uint64_t bytes) override;

 private:
  using Clock = std::chrono::steady_clock;

  struct Lane {
    uint32_t owner;
    std::optional<QueuePair> pair;  ///< none to the own rank
    uint32_t open = 0;              ///< reads under way
  };
  /// What is yet to be posted of the reads from one owner.
  struct Rest {
    uint32_t owner;
    std::span<const RemoteRead> reads;
    uint64_t done = 0;  ///< bytes of the first one
  };

  void make_room(uint64_t bytes);
  void post_all(std::span<const RemoteRead> reads);
  bool post_chain(Rest& rest);
  uint32_t fill_chain(Rest& rest, uint32_t most);
  bool take_completions();
  Lane* free_lane(uint32_t owner);
  [[noreturn]] void fail(const ibv_wc& completion);
  [[noreturn]] void fail_late(std::span<const Rest> rests);

  std::shared_ptr<const VerbsPort> port_;
  std::vector<ExposedShard> shards_;
  Options options_;
  uint32_t depth_;      ///< reads of a lane
  uint32_t most_open_;  ///< of all
  std::unique_ptr<memory::Region> landing_;
  std::optional<RegisteredMemory> registered_;
  Owned<ibv_cq> completions_;
  std::vector<Lane> lanes_;  ///< by owner; gone before what their reads fill
  std::vector<uint32_t> next_lane_;
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> places_;
  uint32_t open_ = 0;
  std::string failed_;  ///< why this is of no use any more
};

}  // namespace gear::transport::verbs

#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/one_sided/device.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registered_memory.h"

namespace gear::transport::verbs {

/// A lane is a queue pair. A chain is one list of RDMA READs, of which the last one is signalled.
class VerbsLanes final : public Lanes {
 public:
  struct Options {
    std::vector<uint8_t> partners;  ///< by rank: 1 to connect to it
    uint32_t queue_pairs = 1;       ///< to each of them
    double timeout_s = 300;
    uint64_t chunk_bytes = 0;  ///< of what its reads fill
  };

  /// `ports` by rank.
  VerbsLanes(std::shared_ptr<const VerbsPort> port, std::vector<PortAddress> ports,
             Options options);

  const Limits& limits() const noexcept override { return limits_; }
  Opaque introduction(uint32_t rank) const override;
  void connect(std::span<const Opaque> others) override;
  ChunkedMemory land_in(Bytes memory) override;
  uint32_t post(uint32_t lane, std::span<const Piece> chain) override;
  std::span<const Ended> ended() override;
  std::string way(uint32_t owner) const override;

 private:
  static constexpr size_t kCompletions = 16;  ///< taken at a time

  std::shared_ptr<const VerbsPort> port_;
  std::vector<PortAddress> ports_;
  Options options_;
  Limits limits_{};
  std::optional<RegisteredMemory> landing_;
  Owned<ibv_cq> completions_;
  std::vector<std::optional<QueuePair>> pairs_;  ///< by lane; to partners
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> places_;
  std::vector<Ended> ended_;
};

}  // namespace gear::transport::verbs

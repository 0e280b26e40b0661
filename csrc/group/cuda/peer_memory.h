#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "group/peers/peers.h"
#include "memory/region.h"
#include "transport/transport.h"

namespace gear::group {

/// Memory of each rank's GPU that the kernels of all ranks of a node read and write by pointer.
class PeerMemory {
 public:
  /// `bytes` of GPU `device`, zeroed; the ranks may name different GPUs. Collective over `control`:
  /// null on all ranks alike, with a warning, where some rank could not map some other's. Throws
  /// OutOfMemory, as transport::on_all.
  static std::unique_ptr<PeerMemory> make(const Peers& peers, uint64_t bytes, int device,
                                          transport::Transport& control);

  std::byte* of(uint32_t rank) const { return regions_[rank]->device_data(); }
  /// Forgets the others' memory; nothing of this rank writes there any more.
  void close_peers();

 private:
  PeerMemory() = default;

  uint32_t rank_ = 0;
  std::vector<std::unique_ptr<memory::Region>> regions_;  ///< by rank
};

}  // namespace gear::group

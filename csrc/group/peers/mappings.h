#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/peers/page_access.h"
#include "memory/peer_region.h"
#include "memory/region.h"

namespace gear::group {

/// The memory of other ranks' shards that this process has mapped.
class Mappings {
 public:
  /// By rank, all three. `own`: of `rank`; the caller's, and outlives this.
  Mappings(const memory::Region& own, uint32_t rank, std::vector<memory::RegionAddress> addresses,
           std::vector<uint64_t> num_pages, std::vector<uint32_t> nodes);

  /// By owner: its pages, for kernels of GPU `device` or (-1) for the host. Maps what can be
  /// mapped; what cannot be has no address: tier kHost, another node, and (logged) what
  /// open_peer_region refuses. Throws CudaError and OutOfMemory as that does.
  std::vector<PeerPages> pages(int device);

 private:
  struct Mapped {
    uint32_t rank;
    int device;
    std::unique_ptr<memory::Region> region;
  };

  const memory::Region* map(uint32_t rank, int device);

  const memory::Region& own_;
  uint32_t rank_;
  std::vector<memory::RegionAddress> addresses_;
  std::vector<uint64_t> num_pages_;
  std::vector<uint32_t> nodes_;
  std::vector<Mapped> mapped_;
};

}  // namespace gear::group

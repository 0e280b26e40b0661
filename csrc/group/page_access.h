#pragma once

#include <cstdint>
#include <vector>

#include "group/mover.h"
#include "group/peers.h"

namespace gear::group {

/// Which rank reads which rank's pages by pointer, for one loader.
struct PageAccess {
  std::vector<PeerPages> pages;     ///< by owner: as this rank reads them
  std::vector<uint64_t> mapped;     ///< by owner: how many of them it reads; 0: rows are sent
  std::vector<uint8_t> by_pointer;  ///< [consumer, owner]
  bool messages = false;            ///< some rank does not read some other's

  bool reads(uint32_t consumer, uint32_t owner) const {
    return by_pointer[consumer * pages.size() + owner] != 0;
  }
};

/// Maps what can be mapped, for kernels of GPU `device` or (-1) for the host, and tells the others.
/// Collective over `control`. Throws, on all ranks, where mapping fails on one.
PageAccess agree_on_access(Peers& peers, int device, transport::Transport& control);

}  // namespace gear::group

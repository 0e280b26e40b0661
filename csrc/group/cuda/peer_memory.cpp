#include "group/cuda/peer_memory.h"

#include <algorithm>

#include "base/errors.h"
#include "base/log.h"
#include "memory/peer_region.h"
#include "transport/on_all.h"
#include "transport/typed.h"

namespace gear::group {

std::unique_ptr<PeerMemory> PeerMemory::make(const Peers& peers, uint64_t bytes, int device,
                                             transport::Transport& control) {
  std::unique_ptr<PeerMemory> memory(new PeerMemory);
  memory->rank_ = peers.rank();
  memory->regions_.resize(peers.size());
  std::unique_ptr<memory::Region>& own = memory->regions_[peers.rank()];
  memory::RegionAddress address;
  transport::on_all(control, [&] {
    memory::RegionOptions options;
    options.device = device;
    own = memory::make_region(memory::Tier::kDevice, bytes, options);
    address = memory::address_of(*own, "");
  });
  const auto addresses = transport::allgather(control, address);
  uint8_t mapped = 1;
  try {
    for (uint32_t r = 0; r < peers.size(); ++r) {
      if (r != peers.rank()) {
        memory->regions_[r] = memory::open_peer_region(addresses[r], device);
      }
    }
  } catch (const base::InvalidArgument& refused) {
    base::log(
        base::Level::kWarning,
        base::cat("[group] the hosts of all ranks draw, not their GPUs, since rank ", peers.rank(),
                  " cannot write into the memory of another's: ", refused.what()));
    mapped = 0;
  }
  const auto all = transport::allgather(control, mapped);
  if (std::ranges::find(all, uint8_t{0}) != all.end()) {
    return nullptr;
  }
  return memory;
}

void PeerMemory::close_peers() {
  for (uint32_t r = 0; r < regions_.size(); ++r) {
    if (r != rank_) {
      regions_[r].reset();
    }
  }
}

}  // namespace gear::group

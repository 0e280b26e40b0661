#include "group/peers/mappings.h"

#include <utility>

#include "base/errors.h"
#include "base/log.h"

namespace gear::group {

Mappings::Mappings(const memory::Region& own, uint32_t rank,
                   std::vector<memory::RegionAddress> addresses, std::vector<uint64_t> num_pages,
                   std::vector<uint32_t> nodes)
    : own_(own),
      rank_(rank),
      addresses_(std::move(addresses)),
      num_pages_(std::move(num_pages)),
      nodes_(std::move(nodes)) {}

std::vector<PeerPages> Mappings::pages(int device) {
  std::vector<PeerPages> pages(addresses_.size());
  for (uint32_t r = 0; r < pages.size(); ++r) {
    const memory::Region* region = r == rank_ ? &own_ : map(r, device);
    if (region == nullptr) {
      continue;
    }
    pages[r].host = device < 0 && region->host_accessible() ? region->data() : nullptr;
    pages[r].device = device >= 0 ? region->device_data() : nullptr;
    if (pages[r].host != nullptr || pages[r].device != nullptr) {
      pages[r].num_pages = num_pages_[r];
    }
  }
  return pages;
}

// Named memory is mapped once, and page-locked when a GPU is to read it; another GPU's memory is
// mapped for each GPU that reads it.
const memory::Region* Mappings::map(uint32_t rank, int device) {
  const memory::RegionAddress& address = addresses_[rank];
  if (nodes_[rank] != nodes_[rank_] || !memory::mappable(address)) {
    return nullptr;
  }
  const bool on_gpu = address.tier == memory::Tier::kDevice;
  for (Mapped& one : mapped_) {
    if (one.rank != rank || (on_gpu && one.device != device)) {
      continue;
    }
    if (!on_gpu && device >= 0 && one.region && one.region->tier() == memory::Tier::kShared) {
      one.region = memory::pin_peer_region(std::move(one.region), device);
    }
    return one.region.get();
  }
  std::unique_ptr<memory::Region> region;
  try {
    region = memory::open_peer_region(address, device);
  } catch (const base::InvalidArgument& error) {
    base::log(base::Level::kWarning,
              base::cat("[group] rank ", rank, " sends its rows to rank ", rank_,
                        ", which cannot read them in place: ", error.what()));
  }
  return mapped_.emplace_back(rank, device, std::move(region)).region.get();
}

}  // namespace gear::group

#include "memory/peer_region.h"

#include <algorithm>
#include <type_traits>

#include "base/errors.h"
#include "memory/peer_device_region.h"
#include "memory/shared/shared_region.h"
#include "memory/tiers.h"

namespace gear::memory {
namespace {

static_assert(std::is_trivially_copyable_v<RegionAddress>);

template <size_t kSize>
void copy_text(std::string_view text, std::array<char, kSize>& out) {
  GEAR_CHECK(text.size() < kSize);
  std::copy(text.begin(), text.end(), out.begin());
}

}  // namespace

RegionAddress address_of(const Region& region, std::string_view schema_hash) {
  RegionAddress address;
  address.tier = region.tier();
  address.bytes = region.bytes();
  address.owner = this_process();
  if (region.tier() == Tier::kDevice) {
    describe_device_region(region, address);
  } else if (!region.name().empty()) {
    copy_text(region.name(), address.name);
    copy_text(schema_hash, address.schema_hash);
  }
  return address;
}

bool mappable(const RegionAddress& address) {
  if (address.tier == Tier::kDevice) {
    return address.shareable || address.owner == this_process();
  }
  return address.name[0] != '\0';
}

std::unique_ptr<Region> open_peer_region(const RegionAddress& address, int device) {
  if (!mappable(address)) {
    throw base::InvalidArgument(
        base::cat("[memory] a region of tier '", kTiers.name(address.tier), "' of process ",
                  address.owner.pid,
                  " cannot be mapped by another: give it a name, on tier 'shared' or "
                  "'pinned', or keep it on tier 'device'"));
  }
  if (address.tier == Tier::kDevice) {
    return open_device_region(address, device);
  }
  auto region = SharedRegion::attach(address.name.data(), address.schema_hash.data());
  if (region->bytes() != address.bytes) {
    throw base::InvalidArgument(
        base::cat("[memory] region '", region->name(), "' has ", region->bytes(),
                  " bytes, but process ", address.owner.pid, " said ", address.bytes,
                  ": another one has taken its name; make both ranks' buffers again"));
  }
  region->allow_writes(false);
  return device < 0 ? std::move(region) : pin_peer_region(std::move(region), device);
}

std::unique_ptr<Region> pin_peer_region(std::unique_ptr<Region>&& region, int device) {
  auto& shared = dynamic_cast<SharedRegion&>(*region);
  shared.allow_writes(true);  // CUDA locks no other pages
  try {
    std::unique_ptr<Region> pinned = pin_region(std::move(region), device);
    shared.allow_writes(false);
    return pinned;
  } catch (...) {
    shared.allow_writes(false);
    throw;
  }
}

}  // namespace gear::memory

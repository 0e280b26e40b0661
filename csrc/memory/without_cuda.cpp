#include "base/errors.h"
#include "base/gpu/devices.h"
#include "memory/peer_device_region.h"
#include "memory/tiers.h"

namespace gear::memory {
namespace {

[[noreturn]] void refuse(Tier tier) {
  base::refuse_without_cuda(base::cat("[memory] tier '", kTiers.name(tier), "'"));
}

}  // namespace

std::unique_ptr<Region> make_pinned_region(uint64_t, const RegionOptions&) {
  refuse(Tier::kPinned);
}

std::unique_ptr<Region> pin_region(std::unique_ptr<Region>&&, int) { refuse(Tier::kPinned); }

std::unique_ptr<Region> make_device_region(uint64_t, int) { refuse(Tier::kDevice); }

void describe_device_region(const Region&, RegionAddress&) { refuse(Tier::kDevice); }

std::unique_ptr<Region> open_device_region(const RegionAddress&, int) { refuse(Tier::kDevice); }

void open_peer_access(int, int) { refuse(Tier::kDevice); }

}  // namespace gear::memory

#include "memory/region.h"

#include <array>

#include "base/errors.h"
#include "memory/host_memory.h"
#include "memory/host_region.h"
#include "memory/shared_region.h"

namespace gear::memory {
namespace {

// Indexed by Tier.
constexpr std::array<std::string_view, 2> kTierNames = {"host", "shared"};

}  // namespace

std::string_view tier_name(Tier tier) {
  const auto index = static_cast<size_t>(tier);
  GEAR_CHECK(index < kTierNames.size());
  return kTierNames[index];
}

Tier parse_tier(std::string_view name) {
  std::string allowed;
  for (size_t i = 0; i < kTierNames.size(); ++i) {
    if (kTierNames[i] == name) {
      return static_cast<Tier>(i);
    }
    allowed += (i == 0 ? "" : ", ");
    allowed += kTierNames[i];
  }
  throw InvalidArgument(cat("[memory] unknown tier '", name, "': choose one of ", allowed));
}

std::unique_ptr<Region> make_region(Tier tier, uint64_t bytes, const RegionOptions& options) {
  if (bytes == 0) {
    throw InvalidArgument("[memory] a region of 0 bytes was asked for: ask for at least one");
  }
  if (tier != Tier::kShared && !options.name.empty()) {
    throw InvalidArgument(cat("[memory] name='", options.name, "' was given with tier='",
                              tier_name(tier), "': leave it out, or use tier='shared'"));
  }
  refuse_more_than_total(tier_name(tier), bytes);
  switch (tier) {
    case Tier::kHost:
      return make_host_region(bytes);
    case Tier::kShared:
      return SharedRegion::create(options.name, bytes, options.schema_hash);
  }
  GEAR_CHECK(!"a tier that has no factory");
}

}  // namespace gear::memory

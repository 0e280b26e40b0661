#pragma once

#include <cstdint>
#include <memory>

#include "memory/region.h"

namespace gear::memory {

/// Tier kHost of make_region, which has checked `bytes`.
std::unique_ptr<Region> make_host_region(uint64_t bytes);

}  // namespace gear::memory

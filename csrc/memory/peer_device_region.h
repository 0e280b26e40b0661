#pragma once

#include <memory>

#include "memory/peer_region.h"

// What of peer_region.h needs CUDA; in a build without it these throw InvalidArgument.

namespace gear::memory {

/// Fills in what a peer needs to map memory of a GPU.
void describe_device_region(const Region& region, RegionAddress& address);

/// open_peer_region for tier kDevice.
std::unique_ptr<Region> open_device_region(const RegionAddress& address, int device);

/// Lets kernels of GPU `reader` read the memory of GPU `owner` of this process by pointer, and
/// makes `reader` current meanwhile. Throws InvalidArgument where the hardware does not let them.
void open_peer_access(int reader, int owner);

}  // namespace gear::memory

#pragma once

#include <cstdint>
#include <memory>

#include "memory/region.h"

namespace gear::memory {

/// Tier kDevice of make_region: one allocation on GPU `device` (-1: the current one), zeroed.
/// Throws OutOfMemory with the bytes asked for and free, the tier and what to change; CudaError for
/// an index that is no GPU; InvalidArgument in a build without CUDA.
std::unique_ptr<Region> make_device_region(uint64_t bytes, int device);

}  // namespace gear::memory

#pragma once

#include <cstdint>
#include <memory>

#include "memory/region.h"

// One tier each of make_region, for that and for each other.

namespace gear::memory {

/// Tier kHost of make_region, which has checked `bytes`.
std::unique_ptr<Region> make_host_region(uint64_t bytes);

/// Tier kPinned of make_region: a region of kHost or, with options.name, of kShared, page-locked.
///
/// Throws, before it allocates anything: OutOfMemory if the limit on locked memory (ulimit -l) is
/// below `bytes`, naming both; CudaError without a GPU; InvalidArgument in a build without CUDA.
std::unique_ptr<Region> make_pinned_region(uint64_t bytes, const RegionOptions& options);

/// Page-locks a region of kHost or kShared that is there already, as a process does with the shared
/// region of a peer (SharedRegion::attach): the same bytes under the same name, of tier kPinned.
/// Every process that reads it from a GPU locks it for itself, through the context of GPU `device`
/// (-1: the current one). Throws as above, and `region` stays the caller's then.
std::unique_ptr<Region> pin_region(std::unique_ptr<Region>&& region, int device = -1);

/// Tier kDevice of make_region: one allocation on GPU `device` (-1: the current one), zeroed.
/// Throws OutOfMemory with the bytes asked for and free, the tier and what to change; CudaError for
/// an index that is no GPU; InvalidArgument in a build without CUDA.
std::unique_ptr<Region> make_device_region(uint64_t bytes, int device);

}  // namespace gear::memory

#pragma once

#include <memory>

#include "base/cuda/cuda.h"
#include "store/mirror/cuda/device_index.h"
#include "store/shard.h"

namespace gear::store {

/// The mirror of a shard on that GPU, as CUDA code sees it. Under the shard's lock.
std::shared_ptr<DeviceIndex> device_index(Shard& shard, int device);

/// The point in the mirror's work that it was given so far. Takes the lock: loaders of one GPU
/// share the mirror's stream, and capture their graphs on it under that lock; a stream that is
/// recorded, or waited for, in the midst of a capture would become a part of it, or end it.
base::Event point_now(Shard& shard, const DeviceIndex& mirror);

/// Waits for that point: for destructors, as base::Event::drain().
void drain(Shard& shard, const DeviceIndex& mirror) noexcept;

}  // namespace gear::store

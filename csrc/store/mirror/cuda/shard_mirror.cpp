#include "store/mirror/cuda/shard_mirror.h"

#include <utility>

#include "base/errors.h"

namespace gear::store {

std::shared_ptr<DeviceIndex> device_index(Shard& shard, int device) {
  std::shared_ptr<Mirror> mirror = shard.mirror(device);
  DeviceIndex* const index = mirror->device_index();
  return {std::move(mirror), index};
}

base::Event point_now(Shard& shard, const DeviceIndex& mirror) {
  const base::OnDevice current(mirror.device());
  base::Event point;
  const auto lock = shard.lock();
  point.record(mirror.stream());
  return point;
}

void drain(Shard& shard, const DeviceIndex& mirror) noexcept {
  try {
    point_now(shard, mirror).drain();
  } catch (const base::Error&) {  // the GPU is lost, and does nothing more
  }
}

}  // namespace gear::store

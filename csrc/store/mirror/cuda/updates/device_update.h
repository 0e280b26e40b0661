#pragma once

#include "base/cuda/staging.h"
#include "store/mirror/cuda/device_delta.h"
#include "store/mirror/cuda/updates/update_intake.h"

namespace gear::store {

/// Updates of priorities on their way into a mirror: taken on the stream they were made on, so that
/// it never waits for the mirror's, and applied on the mirror's: one step finds the last update of
/// every step, and one applies these.
class UpdateQueue {
 public:
  /// Makes the memory of the claims: 4 bytes a step and an episode. `stream` is the mirror's, and
  /// outlives this object. Throws OutOfMemory.
  UpdateQueue(uint32_t owner, uint64_t num_slots, uint64_t num_episodes,
              const base::Stream& stream);

  /// As Mirror::update. Allocates only when `count` is larger than ever before.
  void enqueue(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
               cudaStream_t made_on, const DeviceTables& tables);
  /// Applies entries that were checked, and lie where `made_on` (the mirror's stream, or one of
  /// another GPU) has put them by now; what is put there after may overwrite them.
  void apply(const UpdateSegments& updates, const base::Stream& made_on,
             const DeviceTables& tables);
  /// Whether enqueue() would not wait for the mirror's stream.
  bool has_room() const { return intake_.has_room(); }
  /// As Mirror::raise_failed_update; of the last 64 updates.
  void raise_failed() { intake_.raise_failed(); }

 private:
  static constexpr size_t kParts = 4;

  UpdateSegments copy(const UpdateSegments& updates, const base::Stream& made_on);
  void launch(const UpdateSegments& updates, const DeviceTables& tables);

  const base::Stream& stream_;
  base::DeviceArray<uint32_t> claims_;          ///< by slot: 1 + the last that names it, or 0
  base::DeviceArray<uint32_t> episode_claims_;  ///< by episode
  UpdateIntake intake_;
  base::Staging staging_;  ///< entries from another GPU
};

}  // namespace gear::store

#pragma once

#include "base/cuda/staging.h"
#include "store/mirror/cuda/device_delta.h"

namespace gear::store {

/// Updates of priorities on their way into a mirror: copied on the stream they were made on, so
/// that it never waits for the mirror's, and applied on the mirror's, in two kernels: one that
/// checks them all and finds the last one of every step, and one that applies these, or none.
class UpdateQueue {
 public:
  /// Makes the memory of the claims: 4 bytes a step and an episode. Throws OutOfMemory.
  UpdateQueue(uint64_t num_slots, uint64_t num_episodes, cudaStream_t stream, int device);

  /// As Mirror::update. Allocates only when `count` is larger than ever before.
  void enqueue(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
               cudaStream_t made_on, const DeviceTables& tables, cudaStream_t stream);
  /// As Mirror::raise_failed_update; of the last 16 updates.
  void raise_failed();

  /// Why an update was refused; written by the GPU into mapped memory, `update` last.
  struct Failure {
    uint64_t update;  ///< its number, from 1; 0: nothing failed
    uint64_t position;
    int64_t id;
    float priority;
  };

 private:
  static constexpr size_t kParts = 4;
  static constexpr uint64_t kFailures = 16;

  void copy_from_device(std::byte* there, const int64_t* ids, const float* priorities,
                        uint64_t count, cudaStream_t made_on, cudaStream_t stream);

  int device_;
  base::DeviceArray<uint32_t> claims_;  ///< by slot: 1 + the last position that names it, or 0
  base::DeviceArray<uint32_t> episode_claims_;  ///< by episode
  base::DeviceArray<unsigned long long>
      first_bad_;                        ///< of this update and the next: position, or ~0
  base::PinnedArray<Failure> failures_;  ///< by number of the update, modulo kFailures
  uint64_t number_ = 0;                  ///< of the last update
  base::Staging staging_;                ///< an update a part: ids, then priorities
  base::Event arrived_;
};

}  // namespace gear::store

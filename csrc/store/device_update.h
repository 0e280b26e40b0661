#pragma once

#include <array>

#include "base/cuda.h"
#include "store/device_delta.h"

namespace gear::store {

// Updates of priorities on their way into a mirror. The arrays are copied on the consumer's stream,
// so that it never waits for the mirror's, and applied on the mirror's.
class UpdateQueue {
 public:
  // Makes the memory of the claims: 4 bytes a step.
  UpdateQueue(uint64_t num_slots, uint64_t num_episodes, cudaStream_t stream, int device);
  UpdateQueue() = default;

  // As Mirror::update. Allocates only when `count` is larger than ever before.
  void enqueue(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
               cudaStream_t made_on, const DeviceTables& tables, cudaStream_t stream);
  // As Mirror::raise_failed_update.
  void raise_failed();

  uint64_t bytes() const;

 private:
  // Why an update was refused; written by the GPU into mapped memory.
  struct Failure {
    uint64_t update;  // its number; last, after the rest
    uint64_t position;
    int64_t id;
    float priority;
    bool bad_priority;
  };
  // First refused position of an update, ~0 for none. Two: an update resets the next one's.
  struct Verdict {
    unsigned long long first_bad[2];
  };
  struct Part {
    base::DeviceArray<int64_t> ids;
    base::DeviceArray<float> priorities;
    base::PinnedArray<std::byte> staged;  // of arrays of the host
    base::Event filled;
    base::Event applied;
  };

  static constexpr size_t kParts = 4;
  static constexpr uint64_t kFailures = 16;

  Part& next_part(uint64_t count, cudaStream_t stream);

  int device_ = -1;
  base::DeviceArray<uint32_t> claims_;  // by slot: 1 + the position that was last to name it
  base::DeviceArray<uint32_t> episode_claims_;  // by episode
  base::DeviceArray<Verdict> verdict_;
  base::PinnedArray<Failure> failures_;  // a ring
  uint64_t number_ = 0;                  // of updates so far
  uint64_t reported_ = 0;
  std::array<Part, kParts> parts_;
};

}  // namespace gear::store

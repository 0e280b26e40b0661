#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/cuda/cuda.h"
#include "group/assignment.h"
#include "group/cuda/device_meeting.h"

namespace gear::group {

/// What the ranks offer, end to end, as kernels of one batch see it: of numbers that the host
/// knows, or of what was said at a meeting.
struct OfferedTotals {
  const Said* heard = nullptr;  ///< by rank; null: `known` says it
  uint64_t known[kMostGpuRanks] = {};
};

/// Which draws of a global batch a rank holds, in its GPU's memory; the next batch overwrites it.
/// The counts are to be zero again by then, and `least` infinite: see SaidAt.
struct DeviceShare {
  uint32_t* numbers;   ///< of its own draws, ascending
  uint64_t* targets;   ///< of each, how far into the rank's range
  uint32_t* drawn;     ///< by rank: how many draws of the batch fall on it
  uint32_t* received;  ///< by rank: how many of those this one's batch receives
  float* least;        ///< probability of its own draws
};

/// Looks at all draws of a global batch and keeps those that fall on this rank's shard: the law of
/// select::GroupSampler for draws by chance, on a GPU. Draw i is a pure function of (seed, i), so
/// that nothing is exchanged but what the shards offer; 2 M draws take some 20 microseconds (H200).
/// The counts of all ranks come with it, from which follows who consumes what: see Assignment.
class DeviceShares {
 public:
  /// Of batches of `batch_size` items a rank. Throws OutOfMemory: 12 bytes a draw of all ranks.
  DeviceShares(uint32_t rank, uint32_t size, uint64_t batch_size, Locality locality, uint64_t seed,
               int device);

  /// Enqueues the look at the draws that follow the first `made`. One launch, which first comes to
  /// the meeting where `totals` is heard; two of large batches.
  void launch(const OfferedTotals& totals, const Meeting& meeting, uint64_t made,
              cudaStream_t stream);

  const DeviceShare& share() const { return share_; }
  uint64_t draws() const { return size_ * batch_size_; }

 private:
  uint32_t rank_;
  uint32_t size_;
  uint64_t batch_size_;
  Locality locality_;
  uint64_t seed_;
  base::DeviceArray<uint32_t> numbers_;
  base::DeviceArray<uint64_t> targets_;
  base::DeviceArray<unsigned long long> parts_;  ///< own draws of each block, and in which launch
  base::DeviceArray<uint32_t> counts_;           ///< drawn, received, least
  uint32_t launches_ = 0;
  DeviceShare share_{};
};

}  // namespace gear::group

#include "store/mirror/cuda/staging_ring.h"
#include "base/errors.h"

namespace gear::store {

StagingRing::StagingRing(size_t num_parts, uint64_t part_bytes, int device)
    : part_bytes_(part_bytes), device_(num_parts * part_bytes, device) {
  const base::OnDevice current(device);
  host_ = base::PinnedArray<std::byte>(num_parts * part_bytes, device);
  free_.resize(num_parts);
}

std::byte* StagingRing::acquire() {
  const base::Event& free = free_[next_];
  if (!free.done()) {
    free.synchronize();
  }
  return host_.get() + next_ * part_bytes_;
}

const std::byte* StagingRing::send(uint64_t bytes, cudaStream_t stream) {
  GEAR_CHECK(bytes <= part_bytes_);
  std::byte* there = device_.get() + next_ * part_bytes_;
  GEAR_CUDA_TRY(cudaMemcpyAsync(there, host_.get() + next_ * part_bytes_, bytes,
                                cudaMemcpyHostToDevice, stream));
  return there;
}

void StagingRing::release(cudaStream_t stream) {
  free_[next_].record(stream);
  next_ = (next_ + 1) % free_.size();
}

}  // namespace gear::store

#pragma once

#include <vector>

#include "base/cuda/cuda.h"

namespace gear::store {

/// Page-locked memory in equal parts, each with as much device memory behind it, for data on its
/// way to a GPU: filled by the host in turn, copied by the stream, and filled again once the stream
/// has passed. Waits only when the device is a whole ring behind.
///
///   std::byte* part = ring.acquire();          // fill [part, part + part_bytes())
///   const std::byte* there = ring.send(bytes, stream);
///   kernel<<<...>>>(there);
///   ring.release(stream);                      // after the last launch that reads `there`
class StagingRing {
 public:
  StagingRing(size_t num_parts, uint64_t part_bytes, int device);

  uint64_t part_bytes() const { return part_bytes_; }
  uint64_t device_bytes() const { return device_.bytes(); }

  /// The next part, free to be filled.
  std::byte* acquire();
  /// Copies the first `bytes` of the part to its place in device memory, which it returns.
  const std::byte* send(uint64_t bytes, cudaStream_t stream);
  /// The part is free once `stream` has run what was put on it so far.
  void release(cudaStream_t stream);

 private:
  uint64_t part_bytes_;
  base::PinnedArray<std::byte> host_;
  base::DeviceArray<std::byte> device_;
  std::vector<base::Event> free_;
  size_t next_ = 0;
};

}  // namespace gear::store

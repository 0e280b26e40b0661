#pragma once

#include <algorithm>
#include <vector>

#include "base/cuda/cuda.h"

namespace gear::gather {

/// Memory that grows with what it is asked for, a half more each time, so that a steady state does
/// not allocate. What it had before is kept until it goes itself: to free memory would wait for all
/// that the GPU does, the training step included.
template <class Memory>
class GrowingBuffer {
 public:
  /// At least `bytes`; what was there is not copied.
  std::byte* get(uint64_t bytes, int device) {
    if (bytes > bytes_) {
      bytes_ = std::max(bytes, bytes_ + bytes_ / 2);
      memories_.push_back(allocate(bytes_, device));
    }
    return data();
  }
  std::byte* data() const {
    return memories_.empty() ? nullptr : static_cast<std::byte*>(memories_.back().get());
  }
  uint64_t bytes() const { return bytes_; }

 private:
  static Memory allocate(uint64_t bytes, int device);

  uint64_t bytes_ = 0;
  std::vector<Memory> memories_;
};

template <>
inline base::DeviceBytes GrowingBuffer<base::DeviceBytes>::allocate(uint64_t bytes, int device) {
  return base::DeviceBytes(bytes, device);
}
template <>
inline base::PinnedBytes GrowingBuffer<base::PinnedBytes>::allocate(uint64_t bytes, int device) {
  return base::PinnedBytes(bytes, device);
}

/// Rows that pass between ranks: in the GPU's memory, or in pinned memory of the host, where
/// kernels write and read them by pointer.
class MessageBuffer {
 public:
  explicit MessageBuffer(bool on_host) : on_host_(on_host) {}

  std::byte* get(uint64_t bytes, int device) {
    return on_host_ ? host_.get(bytes, device) : device_.get(bytes, device);
  }
  std::byte* data() const { return on_host_ ? host_.data() : device_.data(); }

 private:
  bool on_host_;
  GrowingBuffer<base::PinnedBytes> host_;
  GrowingBuffer<base::DeviceBytes> device_;
};

}  // namespace gear::gather

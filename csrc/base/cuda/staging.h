#pragma once

#include <cstdint>
#include <vector>

#include "base/cuda/cuda.h"

namespace gear::base {

/// Memory that grows with what it is asked for, a half more each time, so that a steady state does
/// not allocate. What it had before is kept until it goes itself: to free memory would wait for all
/// that the GPU does, the training step included. When its contents may be overwritten is its
/// owner's rule.
class GrowingBuffer {
 public:
  enum class Place : uint8_t {
    kDevice,
    kPinned,  ///< page-locked memory of the host, where kernels read and write by pointer
  };

  GrowingBuffer(Place place, int device) : place_(place), device_(device) {}

  /// At least `bytes`, not zeroed; what was there is not copied. Throws OutOfMemory.
  std::byte* get(uint64_t bytes);

  std::byte* data() const noexcept { return data_; }
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  Place place_;
  int device_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<DeviceArray<std::byte>> on_device_;
  std::vector<PinnedArray<std::byte>> pinned_;
};

/// A ring of parts of page-locked memory, each with as much of a GPU's behind it, for data on its
/// way to that GPU. One rule says when a part may be filled again: when the stream that takes it
/// has come to where release() was called.
///
///     acquire ── the host fills the part ── send ── kernels read it ── release
///        ▲                                                                │
///        └──────────── waits for this, a whole ring later ◄───────────────┘
///
/// Parts grow with what they are asked for; both memories are made when they are first used.
/// Under its owner's lock.
class Staging {
 public:
  Staging(size_t num_parts, int device);

  /// Makes all parts ahead: page-locking takes long. `on_device`: their memory on the GPU too.
  void reserve(uint64_t part_bytes, bool on_device);

  /// The next part, free to be filled: at least `bytes`, aligned to 256. Waits only while the
  /// stream is a whole ring behind.
  std::byte* acquire(uint64_t bytes);

  /// Whether acquire() of the next part would not wait; `behind`: of the one so many parts behind
  /// it.
  bool has_free(size_t behind = 0) const;

  /// Copies bytes [first, first + bytes) of the acquired part to their places on the GPU, where the
  /// part begins at what is returned. A part may be sent piece by piece.
  std::byte* send(uint64_t bytes, cudaStream_t stream, uint64_t first = 0);

  /// In place of both, for data that is on a GPU already: the next part's place on the GPU, free to
  /// be filled by what is put on `stream` from here on. The host does not wait.
  std::byte* acquire_on_device(uint64_t bytes, cudaStream_t stream);

  /// The acquired part may be filled again once `stream` has run what was put on it so far.
  void release(cudaStream_t stream);

 private:
  struct Part {
    GrowingBuffer host;
    GrowingBuffer device;
    Event free;
  };

  std::vector<Part> parts_;
  size_t next_ = 0;
};

}  // namespace gear::base

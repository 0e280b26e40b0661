#include "base/cuda/staging.h"

#include <algorithm>

#include "base/errors.h"

namespace gear::base {

std::byte* GrowingBuffer::get(uint64_t bytes) {
  if (bytes <= bytes_) {
    return data_;
  }
  const uint64_t room = std::max(bytes, bytes_ + bytes_ / 2);
  void* data = nullptr;
  if (place_ == Place::kDevice) {
    data = on_device_.emplace_back(room, device_).get();
  } else {
    data = pinned_.emplace_back(room, device_).get();
  }
  data_ = static_cast<std::byte*>(data);
  bytes_ = room;
  return data_;
}

Staging::Staging(size_t num_parts, int device) {
  const OnDevice on(device);
  for (size_t i = 0; i < num_parts; ++i) {
    parts_.push_back({GrowingBuffer(GrowingBuffer::Place::kPinned, device),
                      GrowingBuffer(GrowingBuffer::Place::kDevice, device), Event()});
  }
}

void Staging::reserve(uint64_t part_bytes, bool on_device) {
  for (Part& part : parts_) {
    part.host.get(part_bytes);
    if (on_device) {
      part.device.get(part_bytes);
    }
  }
}

std::byte* Staging::acquire(uint64_t bytes) {
  Part& part = parts_[next_];
  if (!part.free.done()) {
    part.free.synchronize();
  }
  return part.host.get(bytes);
}

bool Staging::has_free(size_t behind) const {
  return behind < parts_.size() && parts_[(next_ + behind) % parts_.size()].free.done();
}

std::byte* Staging::send(uint64_t bytes, cudaStream_t stream, uint64_t first) {
  Part& part = parts_[next_];
  GEAR_CHECK(first + bytes <= part.host.bytes());
  std::byte* const there = part.device.get(part.host.bytes());
  GEAR_CUDA_TRY(cudaMemcpyAsync(there + first, part.host.data() + first, bytes,
                                cudaMemcpyHostToDevice, stream));
  return there;
}

std::byte* Staging::acquire_on_device(uint64_t bytes, cudaStream_t stream) {
  Part& part = parts_[next_];
  if (!part.free.done()) {
    part.free.make_wait(stream);
  }
  return part.device.get(bytes);
}

void Staging::release(cudaStream_t stream) {
  parts_[next_].free.record(stream);
  next_ = (next_ + 1) % parts_.size();
}

}  // namespace gear::base

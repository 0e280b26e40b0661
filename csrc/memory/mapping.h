#pragma once

#include <cstddef>
#include <utility>

namespace gear::memory {

/// Address space of this process that munmap gives back: the one owner of a mapping.
class Mapping {
 public:
  Mapping() = default;

  /// Owns [address, address + bytes), both whole pages.
  Mapping(void* address, size_t bytes) : address_(address), bytes_(bytes) {}

  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  /// Gives back what lies outside [begin, begin + bytes), which must lie inside, in whole pages.
  void trim(size_t begin, size_t bytes);

  /// False: from here on a write through it ends the process. Throws OutOfMemory.
  void allow_writes(bool allowed);

  std::byte* data() const noexcept { return static_cast<std::byte*>(address_); }
  size_t bytes() const noexcept { return bytes_; }

 private:
  void* address_ = nullptr;
  size_t bytes_ = 0;
};

/// `bytes` rounded up to whole pages of the system. Throws OutOfMemory if that does not fit.
size_t whole_pages(size_t bytes);

}  // namespace gear::memory

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace gear::memory {

/// Memory of messages, kept for those to come: fresh from the system, it costs a page fault every 4
/// KiB, which is more than a piece takes to travel. One thread at a time. Of a message that has not
/// ended the room is not given back but released, for ever: MPI may still read or write there.
class Rooms {
 public:
  std::unique_ptr<std::byte[]> take(uint64_t bytes) {
    auto& free = free_[class_of(bytes)];
    if (free.empty()) {
      return std::unique_ptr<std::byte[]>(new std::byte[std::bit_ceil(bytes)]);
    }
    auto found = std::move(free.back());
    free.pop_back();
    kept_bytes_ -= std::bit_ceil(bytes);
    return found;
  }

  /// What take(bytes) gave.
  void give(std::unique_ptr<std::byte[]> room, uint64_t bytes) {
    if (kept_bytes_ + std::bit_ceil(bytes) > kKeptBytes) {
      free_ = {};  // other sizes are in use by now
      kept_bytes_ = 0;
    }
    free_[class_of(bytes)].push_back(std::move(room));
    kept_bytes_ += std::bit_ceil(bytes);
  }

 private:
  static constexpr uint64_t kKeptBytes = 16 << 20;

  static size_t class_of(uint64_t bytes) {
    return static_cast<size_t>(std::countr_zero(std::bit_ceil(bytes)));
  }

  std::array<std::vector<std::unique_ptr<std::byte[]>>, 64> free_;  // by the power of two
  uint64_t kept_bytes_ = 0;
};

}  // namespace gear::memory

#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace gear::memory {

class Rooms;

/// Gives a room back.
class GiveBack {
 public:
  GiveBack() = default;
  GiveBack(Rooms& rooms, uint64_t bytes) : rooms_(&rooms), bytes_(bytes) {}
  inline void operator()(std::byte* room) const noexcept;

 private:
  Rooms* rooms_ = nullptr;
  uint64_t bytes_ = 0;
};

/// Memory of a message. Where one has not ended it is released, for ever: MPI may still read or
/// write there.
using Room = std::unique_ptr<std::byte[], GiveBack>;

/// Memory of messages, kept for those to come: fresh from the system, it costs a page fault every 4
/// KiB, which is more than a piece takes to travel. Any thread. It outlives its rooms.
///
/// It has up to twice as much as was in use at once lately: what was needed once, and is not any
/// more, goes back to the system after some thousand rooms.
class Rooms {
 public:
  /// Throws std::bad_alloc.
  Room take(uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    if (bytes > kLargest) {
      return {new std::byte[bytes], {*this, bytes}};
    }
    auto& free = free_[class_of(bytes)];
    std::unique_ptr<std::byte[]> found;
    if (free.empty()) {
      found.reset(new std::byte[std::bit_ceil(bytes)]);
    } else {
      found = std::move(free.back());
      free.pop_back();
      kept_bytes_ -= std::bit_ceil(bytes);
    }
    used_bytes_ += std::bit_ceil(bytes);
    most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
    return {found.release(), {*this, bytes}};
  }

  uint64_t kept_bytes() const {
    const std::lock_guard guard(mutex_);
    return kept_bytes_;
  }

 private:
  friend class GiveBack;

  static constexpr uint64_t kLargest = 1 << 30;   // of those that are kept
  static constexpr uint64_t kForgetEvery = 1024;  // rooms, a quarter of what was in use at once

  static size_t class_of(uint64_t bytes) {
    return static_cast<size_t>(std::countr_zero(std::bit_ceil(bytes)));
  }

  void give(std::unique_ptr<std::byte[]> room, uint64_t bytes) {
    if (bytes > kLargest) {
      return;
    }
    const std::lock_guard guard(mutex_);
    if (++given_ % kForgetEvery == 0) {
      most_used_bytes_ = std::max(used_bytes_, most_used_bytes_ / 4 * 3);
    }
    used_bytes_ -= std::bit_ceil(bytes);
    if (kept_bytes_ + used_bytes_ + std::bit_ceil(bytes) > 2 * most_used_bytes_) {
      free_ = {};  // other sizes are in use by now
      kept_bytes_ = 0;
    }
    free_[class_of(bytes)].push_back(std::move(room));
    kept_bytes_ += std::bit_ceil(bytes);
  }

  mutable std::mutex mutex_;
  std::array<std::vector<std::unique_ptr<std::byte[]>>, 31> free_;  // by the power of two
  uint64_t kept_bytes_ = 0;
  uint64_t used_bytes_ = 0;
  uint64_t most_used_bytes_ = 0;
  uint64_t given_ = 0;  // back
};

void GiveBack::operator()(std::byte* room) const noexcept {
  try {
    rooms_->give(std::unique_ptr<std::byte[]>(room), bytes_);
  } catch (const std::bad_alloc&) {  // it is freed
  }
}

}  // namespace gear::memory

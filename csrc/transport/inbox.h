#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/collective.h"
#include "transport/transport.h"

namespace gear::transport {

/// What comes in an exchange, by rank, in memory that is kept for the next one.
///
/// Where nobody knows the sizes it grows with what has come, never by another rank's word alone.
class Inbox {
 public:
  explicit Inbox(uint32_t size) : rooms_(size), all_(size) {}

  /// Nothing has come yet. `sizes`: as of Transport::exchange.
  void begin(std::span<const uint64_t> sizes) {
    for (size_t r = 0; r < rooms_.size(); ++r) {
      rooms_[r].used = 0;
      if (!sizes.empty() && sizes[r] != kSome) {
        rooms_[r].reserve(sizes[r]);
      }
    }
  }

  /// `bytes` more come from rank r.
  void add(uint32_t r, uint64_t bytes) {
    Room& room = rooms_[r];
    if (bytes > room.capacity - room.used) {
      room.reserve(std::bit_ceil(room.used + bytes));
    }
    room.used += bytes;
  }
  /// Adds a copy of them.
  void add(uint32_t r, const std::byte* source, uint64_t bytes) {
    add(r, bytes);
    if (bytes > 0) {
      std::memcpy(place(r, bytes_of(r) - bytes), source, bytes);
    }
  }

  uint64_t bytes_of(uint32_t r) const { return rooms_[r].used; }
  /// Of a byte of those that come from rank r, until the next add.
  std::byte* place(uint32_t r, uint64_t offset) { return rooms_[r].memory.get() + offset; }

  /// All that came, and `own` of this rank; until the next begin.
  std::span<const ConstBytes> all(uint32_t rank, ConstBytes own) {
    for (size_t r = 0; r < rooms_.size(); ++r) {
      all_[r] = {rooms_[r].memory.get(), rooms_[r].used};
    }
    all_[rank] = own;
    return all_;
  }

 private:
  struct Room {
    void reserve(uint64_t bytes) {
      if (bytes <= capacity) {
        return;
      }
      auto larger = std::make_unique_for_overwrite<std::byte[]>(bytes);
      if (used > 0) {
        std::memcpy(larger.get(), memory.get(), used);
      }
      memory = std::move(larger);
      capacity = bytes;
    }

    std::unique_ptr<std::byte[]> memory;
    uint64_t capacity = 0;
    uint64_t used = 0;
  };

  std::vector<Room> rooms_;
  std::vector<ConstBytes> all_;
};

}  // namespace gear::transport

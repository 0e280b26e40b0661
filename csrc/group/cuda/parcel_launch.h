#pragma once

#include <algorithm>
#include <cstdint>

namespace gear::group {

/// How the kernels that write and open parcels are launched.
constexpr uint32_t kParcelThreads = 256;
constexpr uint32_t kWindowsPerLaunch = 32;

/// Thread blocks for `count`, of which each takes `each` at once.
inline unsigned parcel_blocks(uint64_t count, uint64_t each) {
  constexpr uint64_t kMost = 1056;  // 8 a multiprocessor of an H100
  return static_cast<unsigned>(std::clamp<uint64_t>((count + each - 1) / each, 1, kMost));
}

}  // namespace gear::group

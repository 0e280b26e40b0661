#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "memory/region.h"
#include "memory/shared/process_identity.h"

namespace gear::memory {

/// How another process of the same node finds a region: sent to it as these bytes.
struct RegionAddress {
  Tier tier = Tier::kHost;
  uint64_t bytes = 0;
  std::array<char, 160> name{};        ///< kShared, named kPinned: zero-terminated; else empty
  std::array<char, 17> schema_hash{};  ///< with a name
  bool shareable = false;              ///< kDevice: whether `handle` is one
  std::array<std::byte, 64> handle{};  ///< kDevice: a cudaIpcMemHandle_t
  std::array<std::byte, 16> gpu{};     ///< kDevice: its UUID
  ProcessIdentity owner{};
  uint64_t address = 0;  ///< kDevice: of data() in the owner, for peers in the same process
};

/// The address of a region that this process owns.
RegionAddress address_of(const Region& region, std::string_view schema_hash);

/// Whether open_peer_region can map it: named memory, or a GPU's that CUDA can share.
bool mappable(const RegionAddress& address);

/// Maps the region of another process of this node, or of another rank in this process, for
/// reading: named memory for the host, and page-locked with `device` >= 0, so that GPU reads it by
/// pointer; device memory for GPU `device`, by CUDA IPC, over NVLink where there is one. The owner
/// keeps it alive; where it has ended first, the mapping is closed without a word.
///
/// Throws InvalidArgument when it cannot be mapped, naming why: no peer access between the GPUs, a
/// GPU that this process does not see, memory that CUDA cannot share; CudaError, OutOfMemory.
std::unique_ptr<Region> open_peer_region(const RegionAddress& address, int device);

/// Page-locks for GPU `device` what open_peer_region() has mapped for the host, at the address that
/// it has. Throws as pin_region(), and `region` stays the caller's then.
std::unique_ptr<Region> pin_peer_region(std::unique_ptr<Region>&& region, int device);

}  // namespace gear::memory

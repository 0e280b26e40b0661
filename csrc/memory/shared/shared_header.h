#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "memory/shared/process_identity.h"

namespace gear::memory {

/// The first page of a shared region, by which a process that opens it knows what it holds.
///
///     0            sizeof(SharedHeader)   kSharedHeaderBytes          + region_bytes
///     | SharedHeader | zeros              | the region's bytes ...     |
///
/// Written once by the owner, before the memory behind it is reserved, and constant from then on,
/// except `state`. A peer reads the fields only if `magic` and `layout_version` match.
struct alignas(64) SharedHeader {
  std::array<char, 8> magic;
  uint32_t layout_version;
  uint32_t header_bytes;
  uint64_t region_bytes;
  std::array<char, 16> schema_hash;  ///< hex digits
  ProcessIdentity owner;

  /// SharedState. Through a mapping it is accessed by std::atomic_ref only: the owner stores kReady
  /// with release after the whole region is reserved; a peer's acquire load that sees kReady sees
  /// all that the owner wrote before.
  uint32_t state;
};
static_assert(std::is_trivially_copyable_v<SharedHeader> && sizeof(SharedHeader) == 128);
static_assert(offsetof(SharedHeader, owner) == 40 && offsetof(SharedHeader, state) == 64);

enum class SharedState : uint32_t { kInitialising = 1, kReady = 2 };

inline constexpr std::array<char, 8> kSharedMagic = {'G', 'E', 'A', 'R', 'S', 'H', 'M', '1'};
inline constexpr uint32_t kSharedLayoutVersion = 1;
inline constexpr uint32_t kSharedHeaderBytes = 4096;

/// The name of the region's object in /dev/shm: "/<GEAR_SHM_PREFIX>-<name>". Throws InvalidArgument
/// for a name or prefix that is empty, too long or has other characters than [A-Za-z0-9._-].
std::string shared_object_name(std::string_view name);

/// Throws InvalidArgument unless it is 16 hex digits.
void check_schema_hash(std::string_view hash);

}  // namespace gear::memory

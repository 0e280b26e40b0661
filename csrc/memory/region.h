#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gear::memory {

/// Where the bytes of a region live. A further tier is one file, one value here and one line in
/// make_region.
enum class Tier : uint8_t {
  kHost,    ///< memory of this process alone
  kShared,  ///< named POSIX shared memory, for the processes of one user on one node
};

/// "host", "shared".
std::string_view tier_name(Tier tier);

/// The inverse of tier_name. Throws InvalidArgument that lists the names allowed.
Tier parse_tier(std::string_view name);

/// Owned bytes on one tier: zero filled when made, given back by the destructor. The address and
/// the size never change. A region does not synchronise: who writes where is its users' protocol.
class Region {
 public:
  virtual ~Region() = default;

  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// The first byte, aligned to at least 4096.
  virtual std::byte* data() const noexcept = 0;

  /// The bytes asked for; all of [data(), data() + bytes()) may be read and written.
  virtual uint64_t bytes() const noexcept = 0;

  virtual Tier tier() const noexcept = 0;

  /// What a peer attaches by; empty on a tier that cannot be attached to.
  virtual std::string_view name() const noexcept = 0;

 protected:
  Region() = default;
};

struct RegionOptions {
  /// Tier kShared only, and required there: 1 to 128 characters of [A-Za-z0-9._-].
  std::string name;

  /// Tier kShared only: 16 hex digits that a peer must know to attach (Schema::hash).
  std::string schema_hash;
};

/// Makes a region of `bytes` > 0 bytes.
///
/// kHost: anonymous memory that the system provides page by page at the first touch; 4 MiB and up
/// are aligned to 2 MiB and marked for huge pages.
/// kShared: see SharedRegion::create.
///
/// Throws OutOfMemory, with the bytes asked for, what there is and what to change, if the request
/// cannot be met; more than this process may ever have (RAM, or the limit of its control group) is
/// refused here, since memory promised lazily would end in the process being killed hours later.
/// Throws InvalidArgument for options that do not fit the tier.
std::unique_ptr<Region> make_region(Tier tier, uint64_t bytes, const RegionOptions& options = {});

}  // namespace gear::memory

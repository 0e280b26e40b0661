#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/names.h"

namespace gear::memory {

/// Where the bytes of a region live. A further tier is one file, one value here and one line in
/// make_region.
enum class Tier : uint8_t {
  kHost,    ///< memory of this process alone
  kShared,  ///< named POSIX shared memory, for the processes of one user on one node
  kPinned,  ///< memory of either of these kinds, page-locked, that GPUs read over PCIe
  kDevice,  ///< memory of one GPU
};

inline constexpr base::Names<Tier, 4> kTiers{
    "[memory] tier", {"host", "shared", "pinned", "device"}, 4, "; 'device:1' is the second GPU"};

/// A tier as users name it: its name, and for kDevice which GPU.
struct TierChoice {
  Tier tier = Tier::kHost;
  int device = -1;  ///< -1: the current GPU
};

/// "host", "shared", "pinned", "device" or "device:<index>". Throws InvalidArgument.
TierChoice parse_tier_choice(std::string_view text);

/// Owned bytes on one tier: zero filled when made, given back by the destructor. The address and
/// the size never change. A region does not synchronise: who writes where is its users' protocol.
///
///     tier      data()            device_data()                     reached by the host through
///     host      an address here   null                              data()
///     shared    an address here   null                              data()
///     pinned    an address here   the same bytes, seen by kernels   data()
///     device    of the GPU        the same                          read and write
class Region {
 public:
  virtual ~Region() = default;

  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// The first byte, aligned to at least 4096 (kDevice: 256).
  virtual std::byte* data() const noexcept = 0;

  /// The bytes asked for; all of [data(), data() + bytes()) may be read and written.
  virtual uint64_t bytes() const noexcept = 0;

  virtual Tier tier() const noexcept = 0;

  /// What a peer attaches by; empty on a tier that cannot be attached to.
  virtual std::string_view name() const noexcept = 0;

  /// Takes the name away, the owner or a peer: who has mapped the region keeps it, and nobody else
  /// finds it. When a process is killed, nothing is left behind then.
  virtual void hide_name() noexcept {}

  /// Whether the host may use data() as a pointer; if not, it is an address of the GPU's memory.
  virtual bool host_accessible() const noexcept { return true; }

  /// The first byte as kernels address it; null where they cannot reach it.
  virtual std::byte* device_data() const noexcept { return nullptr; }

  /// The GPU whose memory this is; -1 for memory of the host.
  virtual int device() const noexcept { return -1; }

  /// Copies [offset, offset + size) out or in, on any tier, and returns when that is done. On
  /// kDevice no stream is waited for: what writes there must have ended. For checkpoints, not for
  /// batches. `offset + size <= bytes()` is checked, and that it is not a peer's memory on a GPU,
  /// which kernels alone read.
  virtual void read(uint64_t offset, std::span<std::byte> out) const;
  virtual void write(uint64_t offset, std::span<const std::byte> in);

 protected:
  Region() = default;

  /// GEAR_CHECK of a range, for read and write.
  void check_range(uint64_t offset, uint64_t size) const;
};

struct RegionOptions {
  /// Required on kShared, allowed on kPinned: 1 to 128 characters of [A-Za-z0-9._-].
  std::string name;

  /// With a name: 16 hex digits that a peer must know to attach (Schema::hash).
  std::string schema_hash;

  /// Tier kDevice: which GPU. kPinned: through whose context the memory is page-locked; every GPU
  /// reads it then. -1: the current one.
  int device = -1;
};

/// Makes a region of `bytes` > 0 bytes.
///
/// kHost: anonymous memory that the system provides page by page at the first touch; 4 MiB and up
/// are aligned to 2 MiB and marked for huge pages.
/// kShared: see SharedRegion::create.
/// kPinned: one of these two, by whether a name is given, page-locked: see make_pinned_region.
/// kDevice: one allocation on the GPU, zeroed before this returns.
///
/// The last two throw InvalidArgument in a build without CUDA, and CudaError without a GPU.
///
/// Throws OutOfMemory, with the bytes asked for, what there is and what to change, if the request
/// cannot be met; more than this process may ever have (RAM, or the limit of its control group) is
/// refused here, since memory promised lazily would end in the process being killed hours later.
/// Throws InvalidArgument for options that do not fit the tier.
std::unique_ptr<Region> make_region(Tier tier, uint64_t bytes, const RegionOptions& options = {});

}  // namespace gear::memory

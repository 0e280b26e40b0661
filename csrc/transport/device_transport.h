#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "transport/transport.h"

namespace gear::transport {

/// A range of one GPU's memory.
struct DeviceRange {
  std::byte* data = nullptr;
  uint64_t bytes = 0;
};

/// Moves bytes of GPU memory between the ranks of a group, one GPU a rank, on a stream of the
/// caller's. Collective as Transport is.
///
/// What was enqueued is watched by the transport itself: when it fails, or a rank does not take
/// part within the time-out, it is aborted, so that no stream hangs; what it was to fill is
/// undefined then, and the next call throws TransportError.
class DeviceTransport {
 public:
  virtual ~DeviceTransport() = default;
  DeviceTransport(const DeviceTransport&) = delete;
  DeviceTransport& operator=(const DeviceTransport&) = delete;

  virtual std::string_view name() const noexcept = 0;  ///< "nccl"

  /// to[r] goes to rank r, from[r] is filled with what rank r sends here: as many bytes as r's
  /// entry for this rank has. Enqueued on `stream` (a cudaStream_t) of this rank's GPU. Returns at
  /// once; empty ranges are not sent. The entry of the own rank is ignored.
  virtual void alltoallv(std::span<const DeviceRange> to, std::span<const DeviceRange> from,
                         uintptr_t stream) = 0;

  /// Throws TransportError if what was enqueued failed or was aborted. Any thread.
  virtual void check() = 0;

 protected:
  DeviceTransport() = default;
};

/// NCCL's grouped send and receive, over a communicator of its own. The library is the copy that
/// the process has loaded, else the first that is found (docs/transports.md); `control` carries the
/// communicator's id, says whether the group has failed for as long as what is made here lives, and
/// its time-out is that of all that follows. Collective. Throws
/// TransportError, on all ranks, where a rank has no NCCL, another one, too old a one, or shares
/// its GPU with another rank.
std::unique_ptr<DeviceTransport> make_nccl(Transport& control, int device);

}  // namespace gear::transport

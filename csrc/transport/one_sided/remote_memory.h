#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/transport.h"

namespace gear::transport {

/// Bytes [from, from + bytes) of what rank `owner` exposes go to [to, to + bytes) of where a reader
/// puts them.
struct RemoteRead {
  uint32_t owner;
  uint64_t from;
  uint64_t bytes;
  uint64_t to;
};

/// Reads what the other ranks expose, without their taking part: they may compute, sleep or be
/// stopped meanwhile. One thread at a time.
class RemoteReader {
 public:
  virtual ~RemoteReader() = default;

  /// Returns `bytes` bytes, of which those that `reads` name are filled; they stay until the next
  /// call. `reads` are grouped by owner, each one that it is connected to, and none is empty. What
  /// an owner writes meanwhile may come torn: who reads sees to it that nobody does.
  ///
  /// Throws TransportError, which names the owner and says in words what became of the read; the
  /// reader is of no use after that. Waits no longer than the transport's timeout_s(), and what
  /// base::check_interrupt throws meanwhile ends this call alone.
  virtual ConstBytes read(std::span<const RemoteRead> reads, uint64_t bytes) = 0;
};

/// Memory that every rank of a group exposes to the others' reads, for as long as this lives.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;

  /// Reads of the ranks r of which from[r] is 1 alone, to which it connects this one, and them to
  /// it; empty: of all others. Of use until the RemoteMemory of any rank goes. Collective over
  /// `control`, like what made it.
  virtual std::unique_ptr<RemoteReader> connect(Transport& control,
                                                std::span<const uint8_t> from) = 0;
  std::unique_ptr<RemoteReader> connect(Transport& control) { return connect(control, {}); }

  /// This rank exposes `memory` in place of what it did, which may go once this returns; readers
  /// stay connected. Collective over the transport that made it, and no rank reads meanwhile.
  /// Throws TransportError on all ranks where one cannot; it is of no use after that.
  virtual void renew(Bytes memory) = 0;
};

}  // namespace gear::transport

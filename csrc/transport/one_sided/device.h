#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/one_sided/chunked_memory.h"
#include "transport/transport.h"

// What a device that reads other ranks' memory does; RunReader and make_one_sided do the rest.
namespace gear::transport {

/// What one rank tells another, opaque to all but devices of its kind.
using Opaque = std::vector<std::byte>;

/// A part of a read, inside one chunk at either end.
struct Piece {
  uint64_t from;  ///< address at its owner
  uint64_t from_key;
  uint64_t to;  ///< address here
  uint64_t to_key;
  uint64_t bytes;
};

/// Reads of one lane that are over.
struct Ended {
  uint32_t lane;
  uint32_t reads;
  std::string failure;  ///< empty, or what became of the first of them, and what to look at
};

/// Queues of reads from other ranks. Lane owner * per_owner + k is the k-th of those to `owner`.
/// One thread at a time; the last reads end with it, before the memory that they fill goes.
class Lanes {
 public:
  struct Limits {
    uint32_t per_owner;   ///< lanes
    uint32_t depth;       ///< reads of a lane that are under way at most
    uint32_t open;        ///< of all lanes together
    uint64_t most_bytes;  ///< of one read
  };

  virtual ~Lanes() = default;
  virtual const Limits& limits() const noexcept = 0;
  /// What `rank`, a partner, must know of these lanes before they read; of one size for all.
  virtual Opaque introduction(uint32_t rank) const = 0;
  /// `others`: the introduction of every partner to this one, by rank. Throws TransportError.
  virtual void connect(std::span<const Opaque> others) = 0;
  /// Reads fill `memory` from here on, and no other memory; none is under way. Empty: nowhere.
  virtual ChunkedMemory land_in(Bytes memory) = 0;
  /// Posts the first reads of `chain`, and returns how many: fewer, if the device has no room yet.
  virtual uint32_t post(uint32_t lane, std::span<const Piece> chain) = 0;
  /// Those that are over since the last call; valid until the next. Throws TransportError.
  virtual std::span<const Ended> ended() = 0;
  /// Which way reads from `owner` go: "mlx5_0 port 1, ... from InfiniBand, LID 7".
  virtual std::string way(uint32_t owner) const = 0;
};

/// A rank's memory, as long as this lives.
class Exposed {
 public:
  virtual ~Exposed() = default;
  virtual const ChunkedMemory& chunked() const noexcept = 0;
  /// Where it is read; goes to all ranks.
  virtual Opaque address() const = 0;
  /// `memory` in place of what was exposed, at the same address; nothing where that throws
  /// TransportError. Nobody reads meanwhile.
  virtual void renew(Bytes memory) = 0;
};

/// A port of a network, open. Any thread.
class Device {
 public:
  virtual ~Device() = default;
  /// Of the transport: "verbs".
  virtual std::string_view kind() const noexcept = 0;
  /// What shows the state of such devices: "ibv_devinfo".
  virtual std::string_view tool() const noexcept = 0;
  /// What the other ranks' devices must know of this one.
  virtual Opaque address() const = 0;
  /// Why this cannot reach rank `rank`, whose device has `address`; empty: it can.
  virtual std::string obstacle(uint32_t rank, const Opaque& address) const = 0;
  /// `memory` is the caller's and outlives it. Throws TransportError.
  virtual std::unique_ptr<Exposed> expose(Bytes memory) const = 0;
  /// To what ranks expose at `addresses`, by rank: those r of which partners[r] is 1, and of which
  /// this one is a partner too. Throws TransportError.
  virtual std::unique_ptr<Lanes> lanes(double timeout_s, std::vector<Opaque> addresses,
                                       std::vector<uint8_t> partners) const = 0;
};

}  // namespace gear::transport

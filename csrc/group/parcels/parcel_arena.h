#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::group {

/// Rows that every rank packs for the others, each consumer's read by it in one piece:
///
///   place(bytes), for every rank that receives rows, and the rows written there; each is told the
///   place ── read() by the consumers ── clear(), when all of them have
///
///     arena of its owner   [ for rank 1 │ for rank 3 │ ... ]
///                                          │ one read
///     memory of rank 3     [ of rank 0 │ of rank 2 │ ... ]     until the next read()
///
/// All arenas are as large as each other. Where one is too small for a batch, place() says so, and
/// its rows travel another way; wanted() then asks for more, which make() gives to all.
class ParcelArena {
 public:
  static constexpr uint64_t kLeastBytes = 64 << 10;

  /// What an owner has packed for this rank.
  struct Piece {
    uint32_t owner;
    uint64_t at;
    uint64_t bytes;
  };

  /// `data` exposes memory; it is the caller's and outlives this. from: 1 for the ranks that are
  /// read from; empty: all.
  explicit ParcelArena(transport::Transport& data, std::vector<uint8_t> from = {})
      : data_(data), from_(std::move(from)) {}

  /// Bytes that the largest batch so far would have taken, to a power of two, and at least
  /// kLeastBytes. Any thread.
  uint64_t wanted() const { return wanted_.load(std::memory_order_relaxed); }
  /// Arenas of so many bytes, the same number on all ranks, while nothing lies in them; of as many
  /// as now, nothing happens. Collective over `data`. Throws TransportError where the ranks cannot
  /// register them.
  void make(uint64_t bytes);

  /// Where `bytes` bytes are free; none: nowhere.
  std::optional<uint64_t> place(uint64_t bytes);
  std::byte* at(uint64_t place) { return arena_->data() + place; }
  /// Nobody reads what was placed any more.
  void clear() { used_ = 0; }

  /// What lies there, piece by piece, which ascend by owner. Throws TransportError, as a reader
  /// does, and for a piece outside of its owner's arena.
  std::span<const transport::ConstBytes> read(std::span<const Piece> pieces);

 private:
  transport::Transport& data_;
  std::vector<uint8_t> from_;
  std::unique_ptr<memory::Region> former_;  ///< as long as it may be registered
  std::unique_ptr<memory::Region> arena_;
  std::unique_ptr<transport::RemoteMemory> exposed_;  ///< gone before both
  std::unique_ptr<transport::RemoteReader> reader_;
  uint64_t used_ = 0;  ///< or would be, if all of the batch had found room
  std::atomic<uint64_t> wanted_{kLeastBytes};
  std::vector<transport::RemoteRead> reads_;
  std::vector<transport::ConstBytes> arrived_;
};

}  // namespace gear::group

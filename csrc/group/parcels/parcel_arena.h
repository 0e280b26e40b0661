#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/region.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/transport.h"

namespace gear::group {

/// Rows that every rank packs for the others, each consumer's read by it in one piece:
///
///   place(c, bytes), for every rank c that receives rows, and the rows written there ── fetch()
///
///     arena of its owner   [ for rank 1 │ for rank 3 │ ... ]   as long as the batch is fetched
///                                          │ one read
///     memory of rank 3     [ of rank 0 │ of rank 2 │ ... ]     until the next fetch()
///
/// All arenas are as large as the most that a rank has packed for a batch, to a power of two, and
/// at least kLeastBytes. Where one has grown, the others do, so that they are exposed anew once for
/// each size, and stay connected.
class ParcelArena {
 public:
  static constexpr uint64_t kLeastBytes = 64 << 10;

  /// `data` exposes memory; it is the caller's and outlives this.
  explicit ParcelArena(transport::Transport& data);

  /// Room for `bytes` bytes, which stay in place until the next call of this.
  std::byte* place(uint32_t consumer, uint64_t bytes);
  /// Collective over `data`: bytes[o] that rank o has placed for this one, by owner; those of the
  /// own rank do not come. Returns when all ranks have read theirs. Throws TransportError, as a
  /// reader does, where a rank has placed another number of bytes, and where the ranks cannot
  /// register an arena that has grown.
  std::span<const transport::ConstBytes> fetch(std::span<const uint64_t> bytes);

 private:
  /// What an owner says to a consumer.
  struct Note {
    uint64_t begin;  ///< of the rows, in the arena
    uint64_t bytes;
    uint64_t arena_bytes;
  };

  void grow(uint64_t bytes);
  void expose(uint64_t arena_bytes);

  transport::Transport& data_;
  std::unique_ptr<memory::Region> former_;  ///< which is exposed, where the arena has grown
  std::unique_ptr<memory::Region> arena_;
  std::unique_ptr<transport::RemoteMemory> exposed_;  ///< gone before the arena
  std::unique_ptr<transport::RemoteReader> reader_;
  uint64_t exposed_bytes_ = 0;  ///< by every rank
  std::vector<Note> notes_;     ///< by consumer, of this batch
  uint64_t used_ = 0;
  std::vector<transport::RemoteRead> reads_;
  std::vector<transport::ConstBytes> arrived_;  ///< by owner
};

}  // namespace gear::group

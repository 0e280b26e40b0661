#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/region.h"

namespace gear::base {
class Stream;
}

namespace gear::store {

class DeviceIndex;
class Index;

/// What a GPU keeps of a shard's index, so that selection and planning need no host: pages,
/// episodes, which steps may be drawn, and, once a sampler there needs them, priorities and trees
/// of weights. One per (shard, GPU); every call is made under the shard's lock.
//
///   Index ──sync()──► mirror ◄──update()── training step
///     ▲                  │
///     └────settle()──────┘
//
/// The index is the authority on structure. Priorities, once held here, are changed here only: the
/// mirror is *ahead* of the index until it settles. Everything happens on one stream of the
/// mirror's, in the order of the calls: on the pages' own GPU it is the row sink's.
class Mirror {
 public:
  virtual ~Mirror() = default;

  virtual int device() const = 0;

  /// Sends what changed in the index (rows in a row sink of this GPU go first). Returns at once;
  /// with nothing changed it does nothing. Waits only when the device is more than the staging ring
  /// behind.
  virtual void sync() = 0;
  /// Whether sync() and update() go on at once: false while the device is the staging ring behind,
  /// and they would wait for it. See Shard::wait_for_gpu().
  virtual bool has_room() const = 0;

  /// Whether priorities were updated here since the last settle().
  virtual bool ahead() const = 0;
  virtual bool holds_priorities() const = 0;

  /// Sets priorities, in order: of an id that occurs twice the last one counts. Ids of evicted
  /// steps are counted and ignored. Syncs first. Only where holds_priorities().
  ///
  /// `ids` and `priorities` are memory of a GPU (`on_device`), whose values are complete when
  /// `stream` (a cudaStream_t of that GPU) has run what was put on it before this call, and which
  /// may be reused by what is put on it after; or memory of the host, which may be reused on
  /// return.
  ///
  /// Nothing is applied of an update that holds a NaN, negative or infinite priority or an id of
  /// another buffer: a later call of raise_failed_update() says so.
  virtual void update(const int64_t* ids, const float* priorities, uint64_t count, bool on_device,
                      uintptr_t stream) = 0;

  /// Throws InvalidArgument when an earlier update was refused, once for each update; does not
  /// wait.
  virtual void raise_failed_update() = 0;

  /// Gives the index what is known here only; waits for the device then. Where ahead(), priorities,
  /// the largest priority seen and the count of stale updates: O(steps). Where weights were
  /// computed, how many saturated.
  virtual void settle() = 0;
  /// Whether settle() has something to give: where ahead(), always.
  virtual bool unsettled() const = 0;
  /// Notes what the device was given so far; reached() once it has done that, so that settle() has
  /// no more to wait for than what came after. A later mark() takes the place of an earlier one.
  virtual void mark() = 0;
  virtual bool reached() const = 0;
  /// Another mirror, which took the same updates, has settled: this one is no longer ahead.
  virtual void settled_elsewhere() = 0;
  /// This mirror missed what others took, who have settled: its next sync() sends it everything
  /// that the index holds.
  virtual void start_over() = 0;

  /// For CUDA sources, where the type is complete (store/mirror/cuda/device_index.h); null for one
  /// of a test, which needs no GPU.
  virtual DeviceIndex* device_index() noexcept { return nullptr; }
};

/// Rows on their way into a region of device memory, collected in page-locked memory and written by
/// a stream of the region's GPU: a gather that was put on it earlier sees the old rows, one that
/// follows the next flush() the new ones. Under the shard's lock, but for wait().
class RowSink {
 public:
  virtual ~RowSink() = default;

  /// For CUDA code: a gather on another stream waits for this one before it, and this one for the
  /// gather.
  virtual const base::Stream& stream() const = 0;

  /// Copies `bytes` from `source` (null: zeros), to be written to the region from `offset` on.
  virtual void write(uint64_t offset, const std::byte* source, uint64_t bytes) = 0;
  /// A column whose rows lie in memory of this GPU, and where it is in a page.
  struct DeviceColumn {
    const std::byte* from;
    uint64_t offset;
    uint64_t step_bytes;
  };
  /// Row `source` of each column, to that row of that page.
  struct RowMove {
    uint32_t page;
    uint32_t row;
    uint32_t source;
  };
  /// Writes such rows at once; they are read by what is put on the stream here.
  virtual void write_rows(std::span<const DeviceColumn> columns,
                          std::span<const RowMove> moves) = 0;
  /// `page` begins to hold other steps: rows that are written to it come after those written so
  /// far. Without this, rows written between two flushes have no order.
  virtual void reused(uint64_t page) = 0;
  /// Whether so many bytes, with kCallBytes for each call of write() and sizeof(RowMove) for each
  /// row of write_rows(), go on at once: false while the stream is the ring of page-locked memory
  /// behind, and they would wait for it. At most kMostBytes.
  virtual bool has_room(uint64_t bytes) const = 0;
  static constexpr uint64_t kMostBytes = 2 << 20;
  static constexpr uint64_t kCallBytes = 64;
  /// Puts on the stream what was collected; returns at once.
  virtual void flush() = 0;
  /// Returns when the region holds what was flushed.
  virtual void wait() = 0;
};

/// These throw InvalidArgument in a build without CUDA, and CudaError for a GPU that is
/// not there.
/// `region` is of tier kDevice, and outlives the sink; `index` and `rows` outlive the mirror.
std::unique_ptr<RowSink> make_row_sink(memory::Region& region, uint64_t page_bytes);
/// `rows`: of the pages that the index is of, null where no GPU holds
/// them; on its GPU the mirror shares its stream, and sync() flushes it first.
std::shared_ptr<Mirror> make_mirror(Index& index, int device, RowSink* rows);

}  // namespace gear::store

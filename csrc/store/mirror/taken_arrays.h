#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "store/mirror/mirror.h"
#include "store/read_tickets.h"

namespace gear::store {

/// What the arrays of a call held in a GPU's memory when it was made: copies, from the stream of
/// whoever made the arrays. The host does not wait for them, and the stream waits for the sink's
/// only where that has not read the copies of two calls before.
///
///     caller's stream   make ── take ── may overwrite the arrays
///                                 │
///     sink's stream               └─ write_rows
///
/// One call at a time, by one thread. Memory: two calls' arrays on the GPU.
class TakenArrays {
 public:
  struct Array {
    const std::byte* data;
    uint64_t bytes;
    bool to_host;  ///< into page-locked memory of the host, else into the GPU's
  };

  virtual ~TakenArrays() = default;

  virtual int device() const = 0;
  /// One that nobody else uses (a cudaStream_t), for arrays whose own is not known.
  virtual uintptr_t stream() const = 0;
  /// Copies them on `stream`, a cudaStream_t of this GPU; what is put on the `others` from here on
  /// comes behind that. Says where each copy will lie, until the take() after the next. The arrays
  /// are to last until the end that is returned, where nothing on these streams frees them. Throws
  /// OutOfMemory; InvalidArgument for a stream that is captured into a graph.
  virtual std::shared_ptr<const ReadEnd> take(std::span<const Array> arrays, uintptr_t stream,
                                              std::span<const uintptr_t> others,
                                              std::span<const std::byte*> copies) = 0;
  /// Returns when the copies are made: the host may read those in its memory. As base::Blocking
  /// says; asks the host program meanwhile (base::check_interrupt).
  virtual void wait() = 0;
  /// A copy on the GPU, to the host. Likewise.
  virtual void fetch(std::span<std::byte> to, const std::byte* copy) = 0;

  /// As RowSink::write_rows(), of columns that are copies on the GPU. Under the shard's lock.
  virtual void write_rows(std::span<const RowSink::DeviceColumn> columns,
                          std::span<const RowSink::RowMove> moves) = 0;
};

/// Of the sink's GPU; `rows` outlives it. Throws InvalidArgument in a build without CUDA.
std::unique_ptr<TakenArrays> make_taken_arrays(RowSink& rows);

}  // namespace gear::store

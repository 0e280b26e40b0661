#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "store/mirror/mirror.h"
#include "store/read_tickets.h"

namespace gear::store {

/// What the arrays of a call held in a GPU's memory when it was made: copies, from the stream of
/// whoever made the arrays, which does not wait for the mirror's stream. The host waits for
/// neither.
///
///     caller's stream   make ── take ── may overwrite the arrays
///                                 │
///     mirror's stream             └─ follow ── RowSink::write_rows ── release
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
  /// comes behind that. Says where each copy will lie until release(). The arrays are to last until
  /// the end that is returned, where nothing on these streams frees them. Throws OutOfMemory.
  virtual std::shared_ptr<const ReadEnd> take(std::span<const Array> arrays, uintptr_t stream,
                                              std::span<const uintptr_t> others,
                                              std::span<const std::byte*> copies) = 0;
  /// Returns when the host may read the copies that were made into its memory.
  virtual void wait() = 0;
  /// What is put on the mirror's stream from here on finds the copies.
  virtual void follow() = 0;
  /// The copies may be overwritten behind what the mirror's stream was given so far.
  virtual void release() = 0;
};

/// `mirror` outlives it. Throws InvalidArgument in a build without CUDA.
std::unique_ptr<TakenArrays> make_taken_arrays(Mirror& mirror);

}  // namespace gear::store

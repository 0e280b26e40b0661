#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/cast.h"
#include "plan/output.h"
#include "plan/path.h"
#include "store/schema.h"

namespace gear::plan {

/// Where the tensors of a batch lie in its block of memory. B = batch_size, L = length() of a
/// window; every tensor begins at a multiple of 64 bytes.
///
///   ids i64 [B] | probabilities f32 [B] | weights f32 [B]
///   | per window: lengths, mask or cu_seqlens
///   | per derived output: data
///   | per output: data
///
/// All before data[0] is made with the plan; the outputs' data is gathered.
struct BatchLayout {
  /// Outputs that cover the same steps whatever the anchor, and so share lengths, mask and plan:
  /// the same window that does not reach past the anchor, or of the same column (only some columns
  /// may have a closing step).
  struct SharedWindow {
    PlanWindow window;
    std::vector<size_t> outputs;
    bool derives = false;     ///< some derived output has this window
    uint64_t lengths = 0;     ///< i32 [B]: steps there are
    uint64_t mask = 0;        ///< bool [B, L], padded only
    uint64_t cu_seqlens = 0;  ///< i32 [B + 1], packed only: row of each item's first step
  };

  /// An output of a column, whose rows are gathered. The rows of its window are planned and read;
  /// delivered are as many, or of a fold one.
  struct ColumnOutput {
    size_t column;
    bool time_axis;
    float scale;              ///< see cast.h
    uint64_t window_rows;     ///< of an item, planned
    uint64_t delivered_rows;  ///< of an item, at most; of a fold always
    std::optional<Fold> fold;
    std::vector<float> powers;  ///< of a fold's factor, by row of the window (fold.h)
  };

  /// An output that no column holds: `data` [B, L], packed: [sum of lengths]; `window` its place in
  /// windows.
  struct DerivedOutput {
    Derived kind;
    bool time_axis;
    size_t window;
    uint64_t data;
  };

  BatchLayout(const store::Schema& schema, const std::vector<Output>& batch_outputs, uint64_t size,
              bool pack);

  std::vector<ColumnOutput> outputs;
  std::vector<DerivedOutput> derived;
  /// By output: [B, L, shape], packed: [sum of lengths, shape]; of a fold [B, shape].
  std::vector<uint64_t> data;
  std::vector<size_t> window_of;    ///< by output: its place in windows
  std::vector<base::DType> dtypes;  ///< by output: of the delivered tensor
  std::vector<Cast> casts;          ///< by output
  std::vector<uint64_t> row_bytes;  ///< by output: of one delivered step
  std::vector<SharedWindow> windows;
  uint64_t batch_size;
  bool packed;
  uint64_t ids = 0;
  uint64_t probabilities = 0;
  uint64_t weights = 0;
  uint64_t bytes = 0;
};

/// Stands between a batch that a GPU fills and whoever reads it. Its methods may be called from any
/// thread.
class Delivery {
 public:
  virtual ~Delivery() = default;

  /// GPU in whose memory the batch lies; -1: in pinned host memory.
  virtual int device() const noexcept = 0;

  /// Work given to `stream` (a cudaStream_t of device()) from here on sees the batch filled, and
  /// the block is not used again before all that this stream has been given by the time the last
  /// tensor goes. No thread waits. A stream made with cudaStreamNonBlocking must outlive the
  /// tensors.
  virtual void make_wait(uintptr_t stream) = 0;

  /// Returns when the batch is filled.
  virtual void wait() = 0;

  /// Copies the filled block, or as much of it as `out` holds, to host memory.
  virtual void read(std::span<std::byte> out) = 0;
};

/// One delivered batch: memory, its layout, and how much of it is filled.
struct Batch {
  std::shared_ptr<std::byte> block;
  std::shared_ptr<const BatchLayout> layout;
  uint64_t items = 0;          ///< at most layout->batch_size
  std::vector<uint64_t> rows;  ///< by window: rows planned, padding and all
  uint64_t bytes = 0;          ///< copied from the store
  Path path = Path::kHost;
  std::shared_ptr<Delivery> delivery;  ///< null: filled by the host, and complete

  /// Rows of an output's data that are filled.
  uint64_t delivered_rows(size_t output) const {
    return layout->outputs[output].fold ? items : rows[layout->window_of[output]];
  }

  template <class T>
  T* at(uint64_t offset) const {
    return reinterpret_cast<T*>(block.get() + offset);
  }
};

}  // namespace gear::plan

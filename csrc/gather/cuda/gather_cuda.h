#pragma once

#include <memory>
#include <span>
#include <vector>

#include "plan/cuda/device_plan.h"

namespace gear::gather {

/// Pages as a kernel reads them.
struct GatherSource {
  const std::byte* pages = nullptr;  ///< device address of page 0
  bool from_host = false;            ///< mapped host memory
};

/// Moves the rows of plans from pages into the data of batch blocks: one launch for up to 32
/// outputs, with conversions, and zeros for the rows that are not there.
///
/// Every access is aligned whatever the width of a row: columns begin at multiples of 16, and a
/// vector is the largest power of two up to 16 bytes that divides the row.
class GatherCuda {
 public:
  static constexpr size_t kMostBlocks = 8;  ///< kMostGatherBlocks

  /// `ordered`: for rows from AddressOrder, of up to kMostBlocks batches together; else for rows
  /// from DevicePlan, a batch at a time.
  GatherCuda(GatherSource source, std::shared_ptr<const plan::BatchLayout> layout,
             const store::PageLayout& pages, bool ordered, int device);
  ~GatherCuda();

  /// Launches on `stream`; `rows` by window, of `items` items: those of a block after those of the
  /// other, and all blocks full but the last. No allocation, no synchronisation; may be captured
  /// into a graph.
  void launch(const std::vector<plan::DeviceRows>& rows, uint64_t items,
              std::span<std::byte* const> blocks, cudaStream_t stream) const;

 private:
  struct Table;  ///< the outputs of one launch
  std::shared_ptr<const plan::BatchLayout> layout_;
  int device_;
  bool ordered_;
  uint32_t most_blocks_;
  std::vector<Table> tables_;
};

}  // namespace gear::gather

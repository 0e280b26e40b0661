#pragma once

#include <memory>
#include <vector>

#include "plan/cuda/device_plan.h"

namespace gear::gather {

/// Puts the rows of a plan into the order of their addresses, for gathers over a link: a GPU reads
/// pinned host memory twelve times as fast when rows of one host page are asked for side by side,
/// because each translation of an address is a trip over the link and few are kept. Order by larger
/// parts, 64 MiB say, is not enough: the same translations are made again and again.
///
/// Owns its memory, made once for a collector: 8 bytes a row of each window, 4 a row of the
/// largest, and scratch for the sort.
class AddressOrder {
 public:
  /// For the rows of up to `most_batches` batches together.
  AddressOrder(std::shared_ptr<const plan::BatchLayout> layout, const store::PageLayout& pages,
               uint64_t num_pages, int device, uint64_t most_batches = 1);

  /// Sorts `planned`, the rows of DevicePlan, of `items` items; a few launches a window. Stable.
  void launch(const std::vector<plan::DeviceRows>& planned, uint64_t items,
              cudaStream_t stream) const;

  /// By window of the layout; valid behind launch() on its stream.
  const std::vector<plan::DeviceRows>& rows() const { return rows_; }

 private:
  std::shared_ptr<const plan::BatchLayout> layout_;
  uint64_t most_items_;
  int begin_bit_;  ///< of the slot: those that tell host pages apart
  int end_bit_;
  base::DeviceArray<uint32_t> numbers_;  ///< 0, 1, 2 ...
  base::DeviceArray<uint32_t> slots_;
  base::DeviceArray<uint32_t> order_;
  base::DeviceArray<std::byte> scratch_;
  std::vector<plan::DeviceRows> rows_;
};

}  // namespace gear::gather

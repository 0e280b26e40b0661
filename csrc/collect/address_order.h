#pragma once

#include <memory>
#include <vector>

#include "collect/device_plan.h"

namespace gear::collect {

// Puts the rows of a plan into the order of their addresses, for gathers over a link: a GPU reads
// pinned host memory twelve times as fast when neighbouring requests fall into the same part of it,
// because its address translation covers little. Rows are sorted by 64 MiB of pages, not further:
// finer order measured slower, and costs more.
//
// Owns its memory, made once for a collector: 8 bytes a row of each window, 4 a row of the largest,
// and scratch for the sort.
class AddressOrder {
 public:
  AddressOrder(std::shared_ptr<const BatchLayout> layout, const store::PageLayout& pages,
               uint64_t num_pages, int device);

  // Sorts `planned`, the rows of DevicePlan, of `items` items; a few launches a window. Stable.
  void launch(const std::vector<DeviceRows>& planned, uint64_t items, cudaStream_t stream) const;

  // By window of the layout; valid behind launch() on its stream.
  const std::vector<DeviceRows>& rows() const { return rows_; }

 private:
  std::shared_ptr<const BatchLayout> layout_;
  int begin_bit_;  // of the slot: the bits that name the part of the pages
  int end_bit_;
  base::DeviceArray<uint32_t> numbers_;  // 0, 1, 2 ...
  base::DeviceArray<uint32_t> slots_;
  base::DeviceArray<uint32_t> order_;
  base::DeviceArray<std::byte> scratch_;
  std::vector<DeviceRows> rows_;
};

}  // namespace gear::collect

#pragma once

#include <memory>
#include <vector>

#include "collect/device_plan.h"

namespace gear::collect {

// Pages as a kernel reads them.
struct GatherSource {
  const std::byte* pages = nullptr;  // device address of page 0
  bool from_host = false;            // mapped host memory
};

// Moves the rows of a plan from pages into the data of a batch block: one launch for up
// to 32 outputs, with conversions, and zeros for the rows that are not there.
//
// Every access is aligned whatever the width of a row: columns begin at multiples of 16, and a
// vector is the largest power of two up to 16 bytes that divides the row.
class GatherCuda {
 public:
  GatherCuda(GatherSource source, std::shared_ptr<const BatchLayout> layout,
             const store::PageLayout& pages, int device);
  ~GatherCuda();

  // Launches on `stream`; `rows` by window, from DevicePlan or AddressOrder. No allocation, no
  // synchronisation; may be captured into a graph.
  void launch(const std::vector<DeviceRows>& rows, uint64_t items, std::byte* block,
              cudaStream_t stream) const;

 private:
  struct Table;  // the outputs of one launch
  std::shared_ptr<const BatchLayout> layout_;
  int device_;
  bool scattered_ = false;  // short runs out of host memory
  uint32_t most_blocks_;
  std::vector<Table> tables_;
};

}  // namespace gear::collect

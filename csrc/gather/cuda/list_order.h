#pragma once

#include <span>
#include <vector>

#include "base/cuda/cuda.h"
#include "gather/cuda/growing_buffer.h"
#include "gather/cuda/list_gather.h"
#include "store/page_layout.h"

namespace gear::gather {

/// Puts listed rows into the order of their addresses, for gathers from pinned memory of the host;
/// AddressOrder says what that is worth. One stream: what launch() wrote is read by what follows on
/// the same stream, and overwritten by the next.
class ListOrder {
 public:
  ListOrder(const store::PageLayout& pages, int device);

  /// Every list by itself; a few launches each. Stable.
  std::vector<RowList> launch(std::span<const RowList> lists, cudaStream_t stream);

 private:
  int device_;
  int begin_bit_;  ///< of the slot: those that tell host pages apart
  GrowingBuffer<base::DeviceBytes> sorted_;
  GrowingBuffer<base::DeviceBytes> scratch_;
};

}  // namespace gear::gather

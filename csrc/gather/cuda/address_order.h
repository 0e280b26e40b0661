#pragma once

#include <span>
#include <vector>

#include "base/cuda/staging.h"
#include "plan/cuda/device_plan.h"
#include "store/page_layout.h"

namespace gear::gather {

/// Puts lists of rows into the order of their addresses, for gathers over a link: a GPU reads
/// pinned host memory twelve times as fast when rows of one host page are asked for side by side,
/// because each translation of an address is a trip over the link and few are kept. Order by larger
/// parts, 64 MiB say, is not enough: the same translations are made again and again.
///
/// Owns its memory: 8 bytes a row, 4 a row of the longest list without targets, and scratch for the
/// sort; it grows with what it is asked for. One stream: what launch() wrote is read by what
/// follows on the same stream, and overwritten by the next.
class AddressOrder {
 public:
  /// For slots below `num_slots`, which is below 2^32.
  AddressOrder(const store::PageLayout& pages, uint64_t num_slots, int device);

  /// Makes the memory ahead for lists of `rows` rows together, of which one has at most `longest`.
  /// Lists without targets need it: the numbers that stand for those are made here.
  void reserve(uint64_t rows, uint64_t longest);

  /// Sorts every list by itself; a few launches each. Stable; rows that are not there come last.
  /// What is returned is valid until the next call.
  std::span<const plan::RowList> launch(std::span<const plan::RowList> lists, cudaStream_t stream);

 private:
  void make_room(uint64_t rows, uint64_t longest);

  int device_;
  int begin_bit_;  ///< of the slot: those that tell host pages apart
  int end_bit_;
  uint64_t longest_ = 0;                 ///< that there is scratch for
  base::DeviceArray<uint32_t> numbers_;  ///< 0, 1, 2 ...
  base::GrowingBuffer rows_;             ///< slots and targets, list by list
  base::GrowingBuffer scratch_;
  std::vector<plan::RowList> sorted_;
};

}  // namespace gear::gather

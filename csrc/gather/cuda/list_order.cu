#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "gather/cuda/list_order.h"

namespace gear::gather {
namespace {

constexpr uint64_t kHostPageBytes = 4096;  // order inside one spares no translation
constexpr int kSlotBits = 32;

}  // namespace

ListOrder::ListOrder(const store::PageLayout& pages, int device) : device_(device) {
  const uint64_t part_slots =
      std::max<uint64_t>(1, kHostPageBytes * pages.page_steps / pages.page_bytes);
  begin_bit_ = static_cast<int>(std::bit_width(part_slots)) - 1;
}

std::vector<RowList> ListOrder::launch(std::span<const RowList> lists, cudaStream_t stream) {
  uint64_t entries = 0;
  uint32_t most = 0;
  for (const RowList& list : lists) {
    entries += list.count;
    most = std::max(most, list.count);
  }
  auto* next = reinterpret_cast<uint32_t*>(sorted_.get(2 * entries * sizeof(uint32_t), device_));
  size_t scratch_bytes = 0;
  GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, scratch_bytes, next, next, next, next,
                                                static_cast<int>(most), begin_bit_, kSlotBits));
  std::byte* const scratch = scratch_.get(scratch_bytes, device_);
  std::vector<RowList> sorted;
  for (const RowList& list : lists) {
    uint32_t* const slots = next;
    uint32_t* const targets = next + list.count;
    next += 2 * uint64_t{list.count};
    sorted.push_back({slots, targets, list.count});
    if (list.count == 0) {
      continue;
    }
    size_t bytes = scratch_.bytes();
    GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(scratch, bytes, list.slots, slots, list.targets,
                                                  targets, static_cast<int>(list.count), begin_bit_,
                                                  kSlotBits, stream));
  }
  return sorted;
}

}  // namespace gear::gather

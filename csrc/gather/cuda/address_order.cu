#include <algorithm>
#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <numeric>

#include "base/errors.h"
#include "gather/cuda/address_order.h"

namespace gear::gather {
namespace {

// The smallest page of host memory: order inside it spares no translation.
constexpr uint64_t kHostPageBytes = 4096;

}  // namespace

AddressOrder::AddressOrder(const store::PageLayout& pages, uint64_t num_slots, int device)
    : device_(device),
      rows_(base::GrowingBuffer::Place::kDevice, device),
      scratch_(base::GrowingBuffer::Place::kDevice, device) {
  // Above every slot lies the number of bits that kNone fills with ones: zeros come last.
  GEAR_CHECK(num_slots >= 1 && num_slots <= store::kNone);
  end_bit_ = static_cast<int>(std::bit_width(num_slots));
  const uint64_t part_slots =
      std::max<uint64_t>(1, kHostPageBytes * pages.page_steps / pages.page_bytes);
  begin_bit_ = std::min(end_bit_ - 1, static_cast<int>(std::bit_width(part_slots)) - 1);
}

void AddressOrder::make_room(uint64_t rows, uint64_t longest) {
  GEAR_CHECK(longest <= INT32_MAX);
  rows_.get(2 * rows * sizeof(uint32_t));
  if (longest <= longest_) {
    return;
  }
  size_t bytes = 0;
  const uint32_t* const in = nullptr;
  uint32_t* const out = nullptr;
  GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, bytes, in, out, in, out,
                                                static_cast<int>(longest), begin_bit_, end_bit_));
  scratch_.get(bytes);
  longest_ = longest;
}

void AddressOrder::reserve(uint64_t rows, uint64_t longest) {
  const base::OnDevice on(device_);
  make_room(rows, longest);
  std::vector<uint32_t> numbers(longest);
  std::iota(numbers.begin(), numbers.end(), 0U);
  numbers_ = base::DeviceArray<uint32_t>(longest, device_);
  const base::Stream stream(device_);
  GEAR_CUDA_TRY(cudaMemcpyAsync(numbers_.get(), numbers.data(), numbers_.bytes(),
                                cudaMemcpyHostToDevice, stream));
  stream.synchronize();  // no other stream waits for the copy
}

std::span<const plan::RowList> AddressOrder::launch(std::span<const plan::RowList> lists,
                                                    cudaStream_t stream) {
  uint64_t rows = 0;
  uint32_t longest = 0;
  for (const plan::RowList& list : lists) {
    rows += list.count;
    longest = std::max(longest, list.count);
  }
  const base::OnDevice on(device_);
  make_room(rows, longest);
  auto* next = reinterpret_cast<uint32_t*>(rows_.data());
  sorted_.clear();
  for (const plan::RowList& list : lists) {
    uint32_t* const slots = next;
    uint32_t* const targets = next + list.count;
    next += 2 * uint64_t{list.count};
    sorted_.push_back({slots, targets, list.count});
    if (list.count == 0) {
      continue;
    }
    GEAR_CHECK(list.targets != nullptr || list.count <= numbers_.size());
    const uint32_t* const named = list.targets != nullptr ? list.targets : numbers_.get();
    size_t bytes = scratch_.bytes();
    GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(scratch_.data(), bytes, list.slots, slots, named,
                                                  targets, static_cast<int>(list.count), begin_bit_,
                                                  end_bit_, stream));
  }
  return sorted_;
}

}  // namespace gear::gather

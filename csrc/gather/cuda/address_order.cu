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

uint64_t rows_of(const plan::BatchLayout& layout, size_t window, uint64_t items) {
  return items * layout.windows[window].window.length();
}

}  // namespace

AddressOrder::AddressOrder(std::shared_ptr<const plan::BatchLayout> layout,
                           const store::PageLayout& pages, uint64_t num_pages, int device,
                           uint64_t most_batches)
    : layout_(std::move(layout)), most_items_(most_batches * layout_->batch_size) {
  // Above every slot lies the number of bits that kNone fills with ones: zeros come last.
  const uint64_t num_slots = num_pages * pages.page_steps;
  GEAR_CHECK(num_slots >= 1 && num_slots <= store::kNone);
  end_bit_ = static_cast<int>(std::bit_width(num_slots));
  const uint64_t part_slots =
      std::max<uint64_t>(1, kHostPageBytes * pages.page_steps / pages.page_bytes);
  begin_bit_ = std::min(end_bit_ - 1, static_cast<int>(std::bit_width(part_slots)) - 1);
  const base::OnDevice current(device);
  uint64_t most = 0;
  uint64_t all = 0;
  for (size_t w = 0; w < layout_->windows.size(); ++w) {
    const uint64_t rows = rows_of(*layout_, w, most_items_);
    most = std::max(most, rows);
    all += rows;
  }
  GEAR_CHECK(most <= INT32_MAX);
  numbers_ = base::DeviceArray<uint32_t>(most, device);
  slots_ = base::DeviceArray<uint32_t>(all, device);
  order_ = base::DeviceArray<uint32_t>(all, device);
  uint64_t begin = 0;
  for (size_t w = 0; w < layout_->windows.size(); ++w) {
    rows_.push_back({slots_.get() + begin, order_.get() + begin});
    begin += rows_of(*layout_, w, most_items_);
  }
  std::vector<uint32_t> numbers(most);
  std::iota(numbers.begin(), numbers.end(), 0U);
  GEAR_CUDA_TRY(
      cudaMemcpy(numbers_.get(), numbers.data(), numbers_.bytes(), cudaMemcpyHostToDevice));
  // The copy may still be on its way, and no other stream waits for it.
  GEAR_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy));
  size_t scratch_bytes = 0;
  GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, scratch_bytes, slots_.get(), slots_.get(),
                                                numbers_.get(), order_.get(),
                                                static_cast<int>(most), begin_bit_, end_bit_));
  scratch_ = base::DeviceArray<std::byte>(scratch_bytes, device);
}

void AddressOrder::launch(const std::vector<plan::DeviceRows>& planned, uint64_t items,
                          cudaStream_t stream) const {
  GEAR_CHECK(items <= most_items_ && planned.size() == rows_.size());
  if (items == 0) {
    return;
  }
  const base::OnDevice current(scratch_.device());
  for (size_t w = 0; w < rows_.size(); ++w) {
    size_t scratch_bytes = scratch_.bytes();
    GEAR_CUDA_TRY(cub::DeviceRadixSort::SortPairs(
        scratch_.get(), scratch_bytes, planned[w].slots, const_cast<uint32_t*>(rows_[w].slots),
        numbers_.get(), const_cast<uint32_t*>(rows_[w].order),
        static_cast<int>(rows_of(*layout_, w, items)), begin_bit_, end_bit_, stream));
  }
}

}  // namespace gear::gather

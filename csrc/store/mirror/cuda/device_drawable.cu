#include "store/mirror/cuda/device_drawable.h"

#include <utility>

namespace gear::store {
namespace {

constexpr unsigned kBlock = 256;

__global__ void count_steps(const uint64_t* words, uint32_t per_page, uint64_t num_pages,
                            uint64_t* counts) {
  const uint64_t page = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (page >= num_pages) {
    return;
  }
  uint64_t count = 0;
  for (uint32_t w = 0; w < per_page; ++w) {
    count += static_cast<uint64_t>(__popcll(words[page * per_page + w]));
  }
  counts[page] = count;
}

}  // namespace

DeviceDrawable::DeviceDrawable(std::shared_ptr<const Drawable> steps, const IndexOptions& options,
                               const base::Stream& stream)
    : steps_(std::move(steps)),
      per_page_(static_cast<uint32_t>(StepBits::words_of(options.page_steps))),
      words_(options.num_pages * per_page_, stream.device()),
      counts_(options.num_pages, stream, stream.device()) {
  const base::OnDevice current(stream.device());
  GEAR_CUDA_TRY(cudaMemcpyAsync(words_.get(), steps_->bits().words(0).data(), words_.bytes(),
                                cudaMemcpyHostToDevice, stream));
  const auto blocks = static_cast<unsigned>((options.num_pages + kBlock - 1) / kBlock);
  count_steps<<<blocks, kBlock, 0, stream>>>(words_.get(), per_page_, options.num_pages,
                                             counts_.tree().levels[0]);
  GEAR_CUDA_TRY(cudaGetLastError());
  counts_.sum_levels(stream);
  stream.synchronize();  // the host's bits may change from here on
}

}  // namespace gear::store

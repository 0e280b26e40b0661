#include <algorithm>

#include "gather/cuda/fold_rows.h"
#include "plan/fold.h"
#include "store/episode.h"

namespace gear::gather {
namespace {

constexpr uint32_t kFoldThreads = 256;

__global__ void __launch_bounds__(kFoldThreads) fold_rows(const __grid_constant__ FoldJob job) {
  const uint64_t elements = uint64_t{job.items} * job.row_values;
  const uint64_t stride = uint64_t{gridDim.x} * kFoldThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kFoldThreads + threadIdx.x; i < elements; i += stride) {
    const auto item = static_cast<uint32_t>(i / job.row_values);
    const auto value = static_cast<uint32_t>(i - uint64_t{item} * job.row_values);
    uint64_t first = uint64_t{item} * job.n;
    uint32_t count = job.n;
    if (job.cu_seqlens != nullptr) {
      first = static_cast<uint32_t>(job.cu_seqlens[item]);
      count = static_cast<uint32_t>(job.cu_seqlens[item + 1]) - static_cast<uint32_t>(first);
    }
    float sum = 0.0F;
    float power = 1.0F;
    for (uint32_t k = 0; k < count; ++k) {
      const uint32_t slot = __ldg(job.slots + first + k);
      if (slot == store::kNone) {
        break;  // behind the episode's end
      }
      const uint32_t page = job.page_steps.divide(slot);
      const uint64_t row = job.page_steps.remainder(slot, page);
      const auto* column = reinterpret_cast<const float*>(job.source + page * job.page_bytes);
      sum = plan::folded(sum, power, __ldg(column + row * job.row_values + value));
      power = plan::next_power(power, job.factor);
    }
    job.sums[i] = sum;
  }
}

}  // namespace

void launch_fold(const FoldJob& job, uint32_t most_blocks, cudaStream_t stream) {
  const uint64_t elements = uint64_t{job.items} * job.row_values;
  if (elements == 0) {
    return;
  }
  const uint64_t blocks = (elements + kFoldThreads - 1) / kFoldThreads;
  const auto most = static_cast<uint64_t>(std::min<uint32_t>(most_blocks, INT32_MAX));
  fold_rows<<<static_cast<unsigned>(std::min(blocks, most)), kFoldThreads, 0, stream>>>(job);
  GEAR_CUDA_TRY(cudaGetLastError());
}

}  // namespace gear::gather

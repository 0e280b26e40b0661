#include <algorithm>

#include "base/errors.h"
#include "gather/cuda/anchor_upload.h"

namespace gear::gather {
namespace {

constexpr uint64_t kItemBytes = sizeof(uint32_t) + 2 * sizeof(float);

template <class T>
void copy(T* target, const T* source, uint64_t count, cudaStream_t stream) {
  GEAR_CUDA_TRY(cudaMemcpyAsync(target, source, count * sizeof(T), cudaMemcpyHostToDevice, stream));
}

}  // namespace

AnchorUpload::AnchorUpload(uint64_t batch_size, uint64_t page_steps, size_t depth, int device)
    : batch_size_(batch_size), page_steps_(page_steps), staging_(depth, device) {
  staging_.reserve(batch_size * kItemBytes, false);
}

void AnchorUpload::send(const select::Selection& selection, const select::DeviceDraw& out,
                        cudaStream_t stream) {
  const uint64_t items = selection.size();
  GEAR_CHECK(items <= batch_size_);
  std::byte* const part = staging_.acquire(items * kItemBytes);
  auto* const slots = reinterpret_cast<uint32_t*>(part);
  auto* const probabilities = reinterpret_cast<float*>(slots + items);
  float* const weights = probabilities + items;
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    slots[i] = static_cast<uint32_t>(anchor.page * page_steps_ + anchor.row);
  }
  std::copy_n(selection.probabilities.data(), items, probabilities);
  std::copy_n(selection.weights.data(), items, weights);
  copy(out.slots, slots, items, stream);
  copy(out.probabilities, probabilities, items, stream);
  copy(out.weights, weights, items, stream);
  staging_.release(stream);
}

}  // namespace gear::gather

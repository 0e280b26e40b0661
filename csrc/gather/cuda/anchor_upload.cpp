#include <algorithm>

#include "base/errors.h"
#include "gather/cuda/anchor_upload.h"

namespace gear::gather {
namespace {

template <class T>
void copy(T* target, const base::PinnedArray<T>& source, uint64_t count, cudaStream_t stream) {
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(target, source.get(), count * sizeof(T), cudaMemcpyHostToDevice, stream));
}

}  // namespace

AnchorUpload::AnchorUpload(uint64_t batch_size, uint64_t page_steps, size_t depth, int device)
    : page_steps_(page_steps) {
  for (size_t i = 0; i < depth; ++i) {
    parts_.push_back({base::PinnedArray<uint32_t>(batch_size, device),
                      base::PinnedArray<float>(batch_size, device),
                      base::PinnedArray<float>(batch_size, device), base::Event()});
  }
}

void AnchorUpload::send(const select::Selection& selection, const select::DeviceDraw& out,
                        cudaStream_t stream) {
  Part& part = parts_[next_++ % parts_.size()];
  const uint64_t items = selection.size();
  GEAR_CHECK(items <= part.slots.size());
  if (!part.sent.done()) {
    part.sent.synchronize();
  }
  for (uint64_t i = 0; i < items; ++i) {
    const store::Anchor anchor = selection.anchors[i];
    part.slots[i] = static_cast<uint32_t>(anchor.page * page_steps_ + anchor.row);
  }
  std::copy_n(selection.probabilities.data(), items, part.probabilities.get());
  std::copy_n(selection.weights.data(), items, part.weights.get());
  copy(out.slots, part.slots, items, stream);
  copy(out.probabilities, part.probabilities, items, stream);
  copy(out.weights, part.weights, items, stream);
  part.sent.record(stream);
}

}  // namespace gear::gather

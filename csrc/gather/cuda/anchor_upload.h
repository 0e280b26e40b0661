#pragma once

#include "base/cuda/staging.h"
#include "select/cuda/device_sampler.h"
#include "select/selection.h"

namespace gear::gather {

/// Selections that were made on the host, on their way to a GPU: through a ring of page-locked
/// memory, 12 bytes an item.
class AnchorUpload {
 public:
  AnchorUpload(uint64_t batch_size, uint64_t page_steps, size_t depth, int device);

  /// Whether send() would not wait for the stream.
  bool has_room() const { return staging_.has_free(); }
  /// Enqueues the copies of at most batch_size items. Waits only when the stream is the whole ring
  /// behind.
  void send(const select::Selection& selection, const select::DeviceDraw& out, cudaStream_t stream);

 private:
  uint64_t batch_size_;
  uint64_t page_steps_;
  base::Staging staging_;
};

}  // namespace gear::gather

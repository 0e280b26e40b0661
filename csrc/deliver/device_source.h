#pragma once

#include "deliver/batch_source.h"
#include "deliver/collector.h"

// The sources that need CUDA, behind functions that every build has: in one without CUDA they throw
// InvalidArgument, which says how it was built (without_cuda.cpp).

namespace gear::deliver {

/// For a tier or a destination that a GPU has a part in: options.device >= 0, or tier kDevice.
std::unique_ptr<BatchSource> make_device_source(std::shared_ptr<store::Shard> shard,
                                                const CollectorOptions& options);

/// Whether kernels read the pages by pointer; if not, the host gathers, for a GPU into pinned
/// memory. Throws InvalidArgument for what does not go together.
bool uses_kernels(store::Shard& shard, const CollectorOptions& options,
                  const plan::BatchLayout& layout);
/// What takes batches on from there to options.device.
std::unique_ptr<Stage> make_stage(std::shared_ptr<const plan::BatchLayout> layout,
                                  const CollectorOptions& options);

/// Those of collect_ids(). The host may wait.
plan::Batch collect_ids_by_device(store::Shard& shard, const std::vector<int64_t>& ids,
                                  const std::vector<plan::Output>& outputs, bool packed,
                                  int device);

/// GPU number `wanted`, which must be there, or for -1 the calling thread's current one.
int choose_gpu(int wanted);

}  // namespace gear::deliver

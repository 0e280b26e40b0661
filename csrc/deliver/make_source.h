#pragma once

#include <memory>
#include <vector>

#include "deliver/pipeline.h"
#include "deliver/stage.h"

// What brings batches to a loader, by the shard's tier, the device and the path. Where a GPU has a
// part in it, a build without CUDA throws InvalidArgument, which says how it was built
// (without_cuda.cpp).

namespace gear::deliver {

/// Throws InvalidArgument as select::Sampler does, and RateLimiter::check_batch.
std::unique_ptr<Pipeline> make_pipeline(std::shared_ptr<store::Shard> shard, Request request);

/// Delivers exactly the steps named, to host memory (device -1) or a GPU. Throws InvalidArgument
/// for an id that is not stored.
plan::Batch collect_ids(store::Shard& shard, const std::vector<int64_t>& ids,
                        const std::vector<plan::Output>& outputs, bool packed, int device = -1);

/// GPU number `wanted`, which must be there, or for -1 the calling thread's current one.
int choose_gpu(int wanted);

/// Whether kernels read the pages by pointer; if not, the host gathers, for a GPU into pinned
/// memory.
bool uses_kernels(store::Shard& shard, const Request& request);
/// What takes batches on from there to options.device.
std::unique_ptr<Stage> make_stage(std::shared_ptr<const plan::BatchLayout> layout,
                                  const LoaderOptions& options);

// ---- the parts of the above ----
/// For a tier or a destination that a GPU has a part in: options.device >= 0, or tier kDevice.
std::unique_ptr<Source> make_device_source(std::shared_ptr<store::Shard> shard, Request request);
/// Into `batch`, whose layout and number of items are set. For a tier or a device likewise: kernels
/// gather from tier kDevice alone, since elsewhere a mirror of the whole index would be made for
/// one batch.
void collect_ids_by_device(store::Shard& shard, const std::vector<int64_t>& ids, int device,
                           plan::Batch& batch);
/// The same from memory that the host reads, to the host, in the calling thread.
void collect_ids_by_host(store::Shard& shard, const std::vector<int64_t>& ids, plan::Batch& batch);

}  // namespace gear::deliver

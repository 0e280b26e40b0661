// What a build without CUDA has in place of the sources that need a GPU.
#include "base/errors.h"
#include "collect/device_source.h"

namespace gear::collect {
namespace {

[[noreturn]] void refuse(const store::Shard& shard, int device) {
  throw base::InvalidArgument(base::cat(
      "[collect] device '", device < 0 ? "cpu" : base::cat("cuda:", device), "' asked for with tier '",
      memory::tier_name(shard.options().tier),
      "', but this build was made without CUDA (GEAR_WITH_CUDA=OFF): rebuild with CUDA, or use "
      "device='cpu'"));
}

}  // namespace

std::unique_ptr<BatchSource> make_device_source(std::shared_ptr<store::Shard> shard,
                                                const CollectorOptions& options) {
  refuse(*shard, options.device);
}

Batch collect_ids_by_device(store::Shard& shard, const std::vector<int64_t>&,
                            const std::vector<Output>&, bool, int device) {
  refuse(shard, device);
}

}  // namespace gear::collect

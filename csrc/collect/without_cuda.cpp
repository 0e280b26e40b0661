// What a build without CUDA has in place of the sources that need a GPU.
#include "base/errors.h"
#include "collect/device_source.h"

namespace gear::collect {
namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[collect] device 'cuda' asked for, but this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF): rebuild with CUDA, or use device='cpu'");
}

}  // namespace

std::unique_ptr<BatchSource> make_device_source(std::shared_ptr<store::Shard>,
                                                const CollectorOptions&) {
  refuse();
}

Batch collect_ids_by_device(store::Shard&, const std::vector<int64_t>&, const std::vector<Output>&,
                            bool, int) {
  refuse();
}

int current_gpu() { refuse(); }

}  // namespace gear::collect

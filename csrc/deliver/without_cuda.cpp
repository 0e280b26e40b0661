// What a build without CUDA has in place of deliver/cuda/.
#include "base/gpu/devices.h"
#include "deliver/make_source.h"

namespace gear::deliver {
namespace {

[[noreturn]] void refuse() { base::refuse_without_cuda("[loader] device 'cuda'"); }

}  // namespace

std::unique_ptr<Source> make_device_source(std::shared_ptr<store::Shard>, Request) { refuse(); }

bool uses_kernels(store::Shard&, const Request& request) {
  if (request.options.device >= 0) {
    refuse();
  }
  return false;
}

std::unique_ptr<Stage> make_stage(std::shared_ptr<const plan::BatchLayout>, const LoaderOptions&) {
  refuse();
}

void collect_ids_by_device(store::Shard&, const std::vector<int64_t>&, int, plan::Batch&) {
  refuse();
}

int choose_gpu(int) { refuse(); }

}  // namespace gear::deliver

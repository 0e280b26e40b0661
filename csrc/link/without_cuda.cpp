// What a build without CUDA answers in place of link/cuda/.
#include "base/errors.h"
#include "link/bandwidth.h"
#include "link/link_model.h"

namespace gear::link {

Bandwidth measure_bandwidth(int) {
  throw base::InvalidArgument(
      "[memory] there is nothing to measure: this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF, or no nvcc)");
}

}  // namespace gear::link

namespace gear::link {
namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[collect] device 'cuda' asked for, but this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF): rebuild with CUDA, or use device='cpu'");
}

}  // namespace

LinkModel LinkModel::of_device(int) { refuse(); }

std::optional<LinkModel> LinkModel::cached(int) { return std::nullopt; }

LinkModel LinkModel::measure_again(int) { refuse(); }

}  // namespace gear::link

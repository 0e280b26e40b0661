// What a build without CUDA answers in place of link/cuda/.
#include "base/errors.h"
#include "link/bandwidth.h"
#include "link/link_cache.h"

namespace gear::link {

Bandwidth measure_bandwidth(int) {
  throw base::InvalidArgument(
      "[memory] there is nothing to measure: this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF, or no nvcc)");
}

namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[loader] device 'cuda' asked for, but this build was made without CUDA "
      "(GEAR_WITH_CUDA=OFF): rebuild with CUDA, or use device='cpu'");
}

}  // namespace

LinkModel link_to(int) { refuse(); }

std::optional<LinkModel> cached_link_to(int) { return std::nullopt; }

LinkModel measure_link_again(int) { refuse(); }

}  // namespace gear::link

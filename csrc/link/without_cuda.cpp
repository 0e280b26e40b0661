// What a build without CUDA answers in place of link/cuda/.
#include "base/gpu/devices.h"
#include "link/bandwidth.h"
#include "link/link_cache.h"

namespace gear::link {

Bandwidth measure_bandwidth(int) { base::refuse_without_cuda("[memory] the bandwidth of a GPU"); }

LinkModel link_to(int) { base::refuse_without_cuda("[loader] device 'cuda'"); }

std::optional<LinkModel> cached_link_to(int) { return std::nullopt; }

LinkModel measure_link_again(int) { base::refuse_without_cuda("[loader] device 'cuda'"); }

}  // namespace gear::link

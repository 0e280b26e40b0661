#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/gpu/nvtx.h"

namespace gear::base {

void refuse_without_cuda(std::string_view what) {
  throw InvalidArgument(cat(what,
                            " asked for, but this build was made without CUDA "
                            "(GEAR_WITH_CUDA=OFF, or no nvcc): rebuild with CUDA, or use "
                            "device='cpu' and tier='host'"));
}

int device_count() noexcept { return 0; }
std::vector<DeviceInfo> devices() { return {}; }
int driver_version() noexcept { return 0; }
int runtime_version() noexcept { return 0; }
std::string device_names() { return "none"; }

std::array<std::byte, 16> device_uuid(int) { refuse_without_cuda("[cuda] a GPU"); }
void fetch(std::span<std::byte>, const void*, uintptr_t) { refuse_without_cuda("[cuda] a GPU"); }

NvtxRange::NvtxRange(const char*) noexcept {}
NvtxRange::~NvtxRange() = default;

}  // namespace gear::base

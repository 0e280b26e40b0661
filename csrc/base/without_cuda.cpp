#include "base/errors.h"
#include "base/gpu/devices.h"
#include "base/gpu/nvtx.h"

namespace gear::base {
namespace {

[[noreturn]] void refuse() {
  throw InvalidArgument(
      "[cuda] a GPU asked for, but this build was made without CUDA (GEAR_WITH_CUDA=OFF): rebuild "
      "with CUDA, or use device='cpu' and tier='host'");
}

}  // namespace

int device_count() noexcept { return 0; }
std::vector<DeviceInfo> devices() { return {}; }
int driver_version() noexcept { return 0; }
int runtime_version() noexcept { return 0; }
std::string device_names() { return "none"; }

std::array<std::byte, 16> device_uuid(int) { refuse(); }
void fetch(std::span<std::byte>, const void*, uintptr_t) { refuse(); }

NvtxRange::NvtxRange(const char*) noexcept {}
NvtxRange::~NvtxRange() = default;

}  // namespace gear::base

// What a build without CUDA has in place of the sources that need a GPU.
#include "base/errors.h"
#include "transport/device_transport.h"

namespace gear::transport {

std::unique_ptr<DeviceTransport> make_nccl(Transport&, int) {
  throw base::InvalidArgument(
      "[transport] NCCL asked for, but this build was made without CUDA (GEAR_WITH_CUDA=OFF): "
      "rebuild with CUDA, or give the loader nccl=False");
}

}  // namespace gear::transport

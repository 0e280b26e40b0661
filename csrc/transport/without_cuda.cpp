// What a build without CUDA has in place of the sources that need a GPU.
#include "base/gpu/devices.h"
#include "transport/device_transport.h"

namespace gear::transport {

std::unique_ptr<DeviceTransport> make_nccl(Transport&, int) {
  base::refuse_without_cuda("[transport] NCCL");
}

}  // namespace gear::transport

#include "transport/fabric.h"

#include <utility>

#include "base/errors.h"
#if GEAR_FABRIC
#include "transport/fabric/fabric_device.h"
#endif

namespace gear::transport {

#if GEAR_FABRIC

bool fabric_built() { return true; }

std::unique_ptr<Transport> make_fabric(std::shared_ptr<Transport> messages,
                                       const FabricOptions& options) {
  return fabric::open_fabric(std::move(messages), options, fabric::fabric_library);
}

std::string describe_fabric() {
  return fabric::FabricDomain(fabric::fabric_library(), fabric::fabric_choice()).text();
}

#else

bool fabric_built() { return false; }

namespace {

[[noreturn]] void refuse() {
  throw base::InvalidArgument(
      "[transport] this build of GEAR has no transport fabric: build it where rdma/fabric.h "
      "(libfabric-dev, libfabric-devel) is with GEAR_WITH_FABRIC=ON, or choose another transport");
}

}  // namespace

std::unique_ptr<Transport> make_fabric(std::shared_ptr<Transport>, const FabricOptions&) {
  refuse();
}
std::string describe_fabric() { refuse(); }

#endif

}  // namespace gear::transport

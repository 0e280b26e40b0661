#include "transport/fabric/fabric_device.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/fabric/exposed_by_fabric.h"
#include "transport/fabric/fabric_lanes.h"
#include "transport/one_sided/one_sided_transport.h"
#include "transport/typed.h"

namespace gear::transport::fabric {

FabricDevice::FabricDevice(const FabricLibrary& library, const FabricOptions& options)
    : domain_(std::make_shared<const FabricDomain>(library, fabric_choice())), options_(options) {
  GEAR_CHECK(options.chunk_bytes > 0);
}

Opaque FabricDevice::address() const {
  const FabricNetwork network = domain_->network();
  const ConstBytes bytes = bytes_of(network);
  return {bytes.begin(), bytes.end()};
}

std::string FabricDevice::obstacle(uint32_t rank, const Opaque& address) const {
  FabricNetwork other{};
  GEAR_CHECK(address.size() == sizeof other);
  std::memcpy(&other, address.data(), sizeof other);
  const FabricNetwork own = domain_->network();
  if (own.provider == other.provider && own.address_format == other.address_format) {
    return {};
  }
  return base::cat(own.provider.data(), " (address format ", own.address_format,
                   ") cannot reach rank ", rank, ", ", other.provider.data(), " (",
                   other.address_format,
                   "): set GEAR_FABRIC_PROVIDER and GEAR_FABRIC_DOMAIN so that all ranks use one "
                   "network");
}

std::unique_ptr<Exposed> FabricDevice::expose(Bytes memory) const {
  return std::make_unique<ExposedByFabric>(domain_, memory, options_.chunk_bytes);
}

std::unique_ptr<Lanes> FabricDevice::lanes(double, std::vector<Opaque> addresses,
                                           std::vector<uint8_t> partners) const {
  return std::make_unique<FabricLanes>(domain_, std::move(addresses), std::move(partners),
                                       options_.chunk_bytes);
}

std::unique_ptr<Transport> open_fabric(std::shared_ptr<Transport> messages,
                                       const FabricOptions& options,
                                       const FabricLibrary& (*find)()) {
  return make_one_sided(
      std::move(messages), "fabric",
      [&] { return std::make_shared<const FabricDevice>(find(), options); }, options.failure,
      options.required);
}

}  // namespace gear::transport::fabric

#pragma once

#include <memory>

#include "transport/fabric.h"
#include "transport/fabric/fabric_domain.h"
#include "transport/one_sided/device.h"

namespace gear::transport::fabric {

/// A network interface of libfabric: the one that FabricDomain takes.
class FabricDevice final : public Device {
 public:
  /// Throws as FabricDomain.
  FabricDevice(const FabricLibrary& library, const FabricOptions& options);

  std::string_view kind() const noexcept override { return "fabric"; }
  std::string_view tool() const noexcept override { return "fi_info"; }
  Opaque address() const override;
  std::string obstacle(uint32_t rank, const Opaque& address) const override;
  std::unique_ptr<Exposed> expose(Bytes memory) const override;
  std::unique_ptr<Lanes> lanes(double timeout_s, std::vector<Opaque> addresses,
                               std::vector<uint8_t> partners) const override;

 private:
  std::shared_ptr<const FabricDomain> domain_;
  FabricOptions options_;
};

/// As make_fabric, with the library that `find` returns or why there is none throws.
std::unique_ptr<Transport> open_fabric(std::shared_ptr<Transport> messages,
                                       const FabricOptions& options,
                                       const FabricLibrary& (*find)());

}  // namespace gear::transport::fabric

#pragma once

#include <memory>

#include "transport/one_sided/device.h"
#include "transport/verbs.h"
#include "transport/verbs/verbs_port.h"

namespace gear::transport::verbs {

/// The nearest port of libibverbs, or the one that the environment chooses.
class VerbsDevice final : public Device {
 public:
  /// Throws as VerbsPort and port_choice.
  VerbsDevice(const VerbsLibrary& library, const VerbsOptions& options);

  std::string_view kind() const noexcept override { return "verbs"; }
  std::string_view tool() const noexcept override { return "ibv_devinfo"; }
  Opaque address() const override;
  std::string obstacle(uint32_t rank, const Opaque& address) const override;
  std::unique_ptr<Exposed> expose(Bytes memory) const override;
  std::unique_ptr<Lanes> lanes(double timeout_s, std::vector<Opaque> addresses,
                               std::vector<uint8_t> partners) const override;

 private:
  std::shared_ptr<const VerbsPort> port_;
  VerbsOptions options_;
};

/// As make_verbs, with the library that `find` returns or why there is none throws.
std::unique_ptr<Transport> open_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options, const VerbsLibrary& (*find)());

}  // namespace gear::transport::verbs

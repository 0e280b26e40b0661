#include "transport/fabric.h"

#include <utility>

#include "base/errors.h"
#include "transport/collective.h"
#if GEAR_FABRIC
#include "transport/fabric/fabric_device.h"
#include "transport/fabric/fabric_frames.h"
#include "transport/messages/messages.h"
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

namespace {

std::shared_ptr<const fabric::FabricDomain> domain_for_messages(const std::string& interface) {
  const fabric::FabricLibrary& library = fabric::fabric_library();
  const auto open = [&](const fabric::FabricChoice& choice) {
    return std::make_shared<const fabric::FabricDomain>(library, choice,
                                                        fabric::FabricUse::kMessages);
  };
  fabric::FabricChoice choice = fabric::fabric_choice();
  auto first = open(choice);
  if (!choice.domain.empty() || interface.empty() || !first->is_over_tcp()) {
    return first;
  }
  choice.domain = interface;
  choice.provider = first->provider();
  return open(choice);
}

class Place final : public FabricPlace {
 public:
  Place(uint64_t token, const std::string& interface)
      : domain_(domain_for_messages(interface)),
        frames_(new fabric::FabricFrames(domain_)),
        mail_(std::make_shared<messages::Mail>(std::unique_ptr<messages::Frames>(frames_), token)) {
  }

  std::vector<std::byte> address() const override { return frames_->address(); }
  std::string provider() const override { return domain_->provider(); }
  std::string text() const override { return domain_->text(); }

  std::unique_ptr<Transport> connect(std::vector<std::vector<std::byte>> addresses, uint32_t rank,
                                     double timeout_s, std::shared_ptr<Failure> failure,
                                     const std::vector<Neighbour>& neighbours) override {
    const auto size = static_cast<uint32_t>(addresses.size());
    check_membership(rank, size, timeout_s);
    frames_->know(std::move(addresses));
    mail_->know(rank, size, neighbours);
    return std::make_unique<messages::Messages>(mail_, rank, size, timeout_s, std::move(failure));
  }

 private:
  std::shared_ptr<const fabric::FabricDomain> domain_;
  fabric::FabricFrames* frames_;  ///< of mail_
  std::shared_ptr<messages::Mail> mail_;
};

}  // namespace

std::unique_ptr<FabricPlace> make_fabric_place(uint64_t token, const std::string& interface) {
  return std::make_unique<Place>(token, interface);
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
std::unique_ptr<FabricPlace> make_fabric_place(uint64_t, const std::string&) { refuse(); }

#endif

}  // namespace gear::transport

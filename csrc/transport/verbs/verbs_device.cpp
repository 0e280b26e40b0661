#include "transport/verbs/verbs_device.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/one_sided/one_sided_transport.h"
#include "transport/typed.h"
#include "transport/verbs/registered_memory.h"
#include "transport/verbs/verbs_lanes.h"

namespace gear::transport::verbs {
namespace {

PortAddress unpack(const Opaque& opaque) {
  PortAddress address{};
  GEAR_CHECK(opaque.size() == sizeof address);
  std::memcpy(&address, opaque.data(), sizeof address);
  return address;
}

class ExposedByVerbs final : public Exposed {
 public:
  ExposedByVerbs(std::shared_ptr<const VerbsPort> port, Bytes memory, uint64_t chunk_bytes)
      : port_(std::move(port)), chunk_bytes_(chunk_bytes) {
    registered_.emplace(*port_, memory, MemoryUse::kExposed, chunk_bytes_);
  }

  const ChunkedMemory& chunked() const noexcept override { return registered_->chunked(); }
  Opaque address() const override {
    const ConstBytes bytes = bytes_of(port_->address());
    return {bytes.begin(), bytes.end()};
  }
  void renew(Bytes memory) override {
    registered_.reset();  // both at once may be more than this process may lock
    registered_.emplace(*port_, memory, MemoryUse::kExposed, chunk_bytes_);
  }

 private:
  std::shared_ptr<const VerbsPort> port_;
  uint64_t chunk_bytes_;
  std::optional<RegisteredMemory> registered_;
};

}  // namespace

VerbsDevice::VerbsDevice(const VerbsLibrary& library, const VerbsOptions& options)
    : port_(std::make_shared<const VerbsPort>(library, port_choice())), options_(options) {
  GEAR_CHECK(options.queue_pairs > 0 && options.chunk_bytes > 0);
}

Opaque VerbsDevice::address() const {
  const ConstBytes bytes = bytes_of(port_->address());
  return {bytes.begin(), bytes.end()};
}

std::string VerbsDevice::obstacle(uint32_t rank, const Opaque& address) const {
  const PortAddress other = unpack(address);
  if (same_family(port_->address(), other)) {
    return {};
  }
  return base::cat(address_text(port_->address()), " cannot reach rank ", rank, ", ",
                   address_text(other),
                   ": set GEAR_VERBS_DEVICE and GEAR_VERBS_GID so that all ranks use addresses of "
                   "one family");
}

std::unique_ptr<Exposed> VerbsDevice::expose(Bytes memory) const {
  return std::make_unique<ExposedByVerbs>(port_, memory, options_.chunk_bytes);
}

// Many ranks would ask for more queue pairs than a card's cache holds.
std::unique_ptr<Lanes> VerbsDevice::lanes(double timeout_s, std::vector<Opaque> addresses,
                                          std::vector<uint8_t> partners) const {
  constexpr size_t kFewRanks = 64;
  const uint32_t queue_pairs = addresses.size() > kFewRanks ? 1 : options_.queue_pairs;
  std::vector<PortAddress> ports;
  ports.reserve(addresses.size());
  for (const Opaque& address : addresses) {
    ports.push_back(unpack(address));
  }
  return std::make_unique<VerbsLanes>(
      port_, std::move(ports),
      VerbsLanes::Options{std::move(partners), queue_pairs, timeout_s, options_.chunk_bytes});
}

std::unique_ptr<Transport> open_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options, const VerbsLibrary& (*find)()) {
  return make_one_sided(
      std::move(messages), "verbs",
      [&] { return std::make_shared<const VerbsDevice>(find(), options); }, options.failure,
      options.required);
}

}  // namespace gear::transport::verbs

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/failure.h"
#include "transport/messages/neighbour.h"
#include "transport/transport.h"

namespace gear::transport {

struct FabricOptions {
  /// Memory is registered in pieces of at most so many bytes.
  uint64_t chunk_bytes = uint64_t{16} << 30;
  /// Of the rank's group; null: nobody else hears of a failed read.
  std::shared_ptr<Failure> failure = nullptr;
  /// false: memory that a rank cannot register is exposed by none, with a warning; rows then go by
  /// messages.
  bool required = true;
};

/// "fabric": rows are read one-sided through libfabric (FI_RMA), out of memory that its owner
/// registered; everything else goes by `messages`, a transport between the same ranks. Where the
/// provider needs the owner's CPU to answer, as tcp does, a thread of the owner gives it.
///
/// libfabric is opened when the first of these is made. GEAR_FABRIC_PROVIDER and GEAR_FABRIC_DOMAIN
/// choose. Collective over `messages`.
///
/// Throws TransportError on all ranks alike, naming each rank that has no provider to use and why,
/// or another one. Throws InvalidArgument in a build without libfabric's header.
std::unique_ptr<Transport> make_fabric(std::shared_ptr<Transport> messages,
                                       const FabricOptions& options);

/// What make_fabric would take here: "cxi on cxi0". Throws as make_fabric.
std::string describe_fabric();

/// Whether this build has them.
bool fabric_built();

/// Where messages for this rank arrive, before the others know of it.
class FabricPlace {
 public:
  virtual ~FabricPlace() = default;

  /// For connect() of the others; travels to them as it is.
  virtual std::vector<std::byte> address() const = 0;
  /// "tcp", "cxi": ranks with the same one reach each other.
  virtual std::string provider() const = 0;
  /// "tcp on eth0".
  virtual std::string text() const = 0;

  using Neighbour = messages::Neighbour;

  /// "libfabric": messages between ranks that reach each other when they first have something to
  /// say. Not collective. Once.
  ///
  /// addresses: by rank, this one's too. neighbours: ranks on this machine, which are named soon
  /// where their processes have ended. Throws InvalidArgument, and TransportError for an address of
  /// another network.
  virtual std::unique_ptr<Transport> connect(std::vector<std::vector<std::byte>> addresses,
                                             uint32_t rank, double timeout_s,
                                             std::shared_ptr<Failure> failure,
                                             const std::vector<Neighbour>& neighbours) = 0;
};

/// token: of the launch, the same on all its ranks and on no others. interface: the network
/// interface of this machine that a provider over TCP is to use, "eth0"; empty: its first. What the
/// environment says comes before it, as in make_fabric. Throws TransportError where libfabric, or a
/// provider to use, is not there; InvalidArgument in a build without libfabric's header.
std::unique_ptr<FabricPlace> make_fabric_place(uint64_t token, const std::string& interface);

}  // namespace gear::transport

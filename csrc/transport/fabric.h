#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/failure.h"
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

/// Whether this build has the transport.
bool fabric_built();

}  // namespace gear::transport

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/failure.h"
#include "transport/transport.h"

namespace gear::transport {

struct VerbsOptions {
  /// Memory is registered in pieces of at most so many bytes, of the device's own limit where that
  /// is less.
  uint64_t chunk_bytes = uint64_t{16} << 30;
  /// Queue pairs of each reader to every rank that it reads of, of 64 ranks at most; else one.
  uint32_t queue_pairs = 4;
  /// Of the rank's group; null: nobody else hears of a failed read.
  std::shared_ptr<Failure> failure = nullptr;
  /// false: memory that a rank cannot register is exposed by none, with a warning; rows then go by
  /// messages.
  bool required = true;
};

/// "verbs": rows are read one-sided by RDMA READ (InfiniBand, RoCE), out of memory that its owner
/// registered; everything else goes by `messages`, a transport between the same ranks.
///
/// libibverbs is opened when the first of these is made. GEAR_VERBS_DEVICE, GEAR_VERBS_GID and
/// GEAR_VERBS_PKEY choose the port, its address and its partition, GEAR_VERBS_SL and GEAR_VERBS_TC
/// the service level and the traffic class of its packets. Collective over `messages`.
///
/// Throws TransportError on all ranks alike, naming each rank that has no device to use and why: no
/// libibverbs, no active port, variables that name none, addresses of two families. Throws
/// InvalidArgument in a build without libibverbs' header.
std::unique_ptr<Transport> make_verbs(std::shared_ptr<Transport> messages,
                                      const VerbsOptions& options);

/// The port that make_verbs would take here: "mlx5_0 port 1, InfiniBand, LID 7, MTU 4096". Throws
/// TransportError where there is none, and InvalidArgument, as make_verbs.
std::string describe_verbs_port();

/// Whether this build has the transport.
bool verbs_built();

}  // namespace gear::transport

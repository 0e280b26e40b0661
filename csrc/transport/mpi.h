#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/failure.h"
#include "transport/messages/frames.h"
#include "transport/transport.h"

namespace gear::transport {

struct MpiOptions {
  /// Handle of the communicator in Fortran, as mpi4py's Comm.py2f() gives it; 0: MPI_COMM_WORLD.
  int communicator = 0;
  double timeout_s = 300;
  /// Longer entries are cut; the same on all ranks. With its head a message has 1 MiB.
  uint64_t message_bytes = (uint64_t{1} << 20) - sizeof(messages::FrameHead);
  /// Of the rank's group; null: of this transport and its duplicates alone.
  std::shared_ptr<Failure> failure = nullptr;
  /// base::interrupt_check, of which the library has another copy. Set by make_mpi.
  void (*interrupt_check)() = nullptr;
};

/// "mpi": messages of the site's MPI, on a communicator of the transport's own, which its
/// duplicates share. The code that calls MPI is in libgear_mpi.so, beside the file that contains
/// the core, and opened at the first use.
///
/// Collective over the communicator, which is duplicated. Initialises MPI for several threads if
/// nobody has; then MPI is finalised when the process exits, unless a transport has failed, since
/// that would wait for ranks that are gone.
///
/// Needs MPI_THREAD_MULTIPLE. With MPI_THREAD_SERIALIZED all transports of the process take turns
/// at MPI, waiting outside of it, and nobody else may call it at the same time.
///
/// Calls go as messages/ says. MPI touches memory of the transport alone, from which entries are
/// copied: after a failure nothing reads or writes the buffers of that call, and what was under
/// way, some messages a rank, stays in memory for ever. A rank that has ended is not told from a
/// late one; MPI's launcher may end all of them then.
///
/// Throws InvalidArgument in a build without MPI and for an intercommunicator; TransportError where
/// the library or its MPI cannot be loaded, where MPI allows too few threads, for errors of MPI,
/// and when ranks do not come.
std::unique_ptr<Transport> make_mpi(const MpiOptions& options);

/// The MPI that this was built with, "Open MPI v4.1.4"; empty: none.
std::string mpi_built_with();

/// A rank of a communicator.
struct MpiPlace {
  std::unique_ptr<messages::Frames> frames;
  uint32_t rank = 0;
  uint32_t size = 0;
};

/// What libgear_mpi.so exports. kMpiEntry is the name of a function of this type; `version` is what
/// the caller was built as, and must be the same.
using MpiEntry = void (*)(const MpiOptions& options, const char* version, MpiPlace& place);
inline constexpr const char* kMpiEntry = "gear_open_mpi";

}  // namespace gear::transport

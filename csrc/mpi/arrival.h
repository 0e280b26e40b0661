#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gear::mpi {

/// A message that has come, and has not been received. What has come is looked at before a byte of
/// it is received: Open MPI 4.1 writes a message that is longer than its room past the end of that,
/// between processes of one node.
struct Arrival {
  MPI_Message message;
  int source;
  uint64_t bytes;
};

/// The first one of `source`, or of MPI_ANY_SOURCE; none: none has come. Throws TransportError.
std::optional<Arrival> look_for(MPI_Comm communicator, int source, int tag);

/// Begins to receive all of it into `room`, which stays until MPI is done. Throws TransportError.
MPI_Request receive(const Arrival& arrival, std::byte* room);

/// Bytes as MPI counts them: one by one, or, of more than it counts, blocks and what is left.
class Counted {
 public:
  /// Throws TransportError.
  explicit Counted(uint64_t bytes);
  /// A message under way keeps what it needs.
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
};

}  // namespace gear::mpi

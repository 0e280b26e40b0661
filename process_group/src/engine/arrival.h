#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gear::process_group {

/// A message that has come to this rank, and has not been received: its length is looked at first.
/// To receive what is longer than its room is no error that MPI must report; Open MPI 4.1 writes
/// all of it between processes of one node.
class Arrival {
 public:
  /// The first one from `peer` (or MPI_ANY_SOURCE) with `tag`, if there is one. Throws
  /// TransportError.
  static std::optional<Arrival> look(int peer, int tag, MPI_Comm communicator);

  int source() const noexcept { return source_; }
  uint64_t bytes() const noexcept { return bytes_; }

  // One of these, once.
  /// Begins to receive bytes() of them.
  MPI_Request receive(std::byte* to);
  /// Lets its sender go on; nobody reads it.
  void drop() noexcept;

 private:
  Arrival(MPI_Message message, int source, uint64_t bytes)
      : message_(message), source_(source), bytes_(bytes) {}

  MPI_Message message_;
  int source_;
  uint64_t bytes_;
};

/// Begins to send `bytes` bytes, of any number.
MPI_Request send(const std::byte* from, uint64_t bytes, int peer, int tag, MPI_Comm communicator);

}  // namespace gear::process_group

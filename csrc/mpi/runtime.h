#pragma once

#include <mpi.h>

#include <mutex>

namespace gear::mpi {

/// The MPI of this process: initialised by whoever needed it first. Throws TransportError if it is
/// finalised, or allows fewer than one thread at a time.
void require_runtime();

/// Held around calls of MPI, by all transports: a lock where MPI takes one thread at a time, else
/// nothing. Not held while waiting.
class Turn {
 public:
  Turn();

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Throws TransportError with MPI's words unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

/// MPI is not finalised at the end: that would wait for ranks that are gone. Libraries that have
/// this code, each a copy of its own, tell each other by the name of MPI_COMM_SELF.
void never_finalise() noexcept;

/// Whether calls are allowed still.
bool is_running();

}  // namespace gear::mpi

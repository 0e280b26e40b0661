#pragma once

#include <mpi.h>

#include <span>
#include <vector>

namespace gear::mpi {

/// Asks for many requests at once, and keeps what MPI wants for that.
class Requests {
 public:
  /// The places of those that have ended, which are MPI_REQUEST_NULL from then on. Throws
  /// TransportError with MPI's words for the first that failed; others may have ended then, and are
  /// MPI_REQUEST_NULL too.
  std::span<const int> ended(std::span<MPI_Request> open);
  /// The places of those that failed in the last call of ended(), which are not to be asked again.
  std::span<const int> failed() const { return failed_; }

 private:
  std::vector<int> failed_;
  std::vector<int> ended_;
  std::vector<MPI_Status> statuses_;
};

/// Waits a moment for all of them; whether they have ended. If not, what they read and write must
/// stay for ever.
bool settled(std::span<MPI_Request> open) noexcept;

}  // namespace gear::mpi

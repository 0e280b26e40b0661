#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <string>

namespace gear::mpi {

/// Waiting for MPI means calling it again and again: without a pause at first, then rarely, so that
/// threads that compute keep the CPU.
class Backoff {
 public:
  void pause() noexcept;

 private:
  uint32_t turn_ = 0;
};

/// Returns when `has_ended` says so. Throws TransportError with the words `late` after timeout_s,
/// and what `look` or base::check_interrupt throws, which are asked every 100 ms.
void wait_until(const std::function<bool()>& has_ended, double timeout_s, const std::string& late,
                const std::function<void()>& look = nullptr);

/// Waits so for a request of the MPI function `what`. Where it throws, the request goes on: what it
/// reads and writes has to stay for ever, and MPI is not finalised at the end.
void await(MPI_Request& request, const char* what, double timeout_s, const std::string& late,
           const std::function<void()>& look = nullptr);

/// A duplicate of `original`, waited for in the same way. Collective.
MPI_Comm duplicate_of(MPI_Comm original, double timeout_s, const std::string& late,
                      const std::function<void()>& look = nullptr);

}  // namespace gear::mpi

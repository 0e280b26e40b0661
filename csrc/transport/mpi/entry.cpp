#include <cstring>
#include <memory>
#include <type_traits>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "mpi/runtime.h"
#include "mpi/waiting.h"
#include "transport/mpi.h"
#include "transport/mpi/mpi_frames.h"

namespace gear::transport {
namespace {

using gear::mpi::check;
using gear::mpi::Turn;

MPI_Comm original(int handle) {
  MPI_Comm communicator = MPI_COMM_WORLD;
  int between = 0;
  const Turn turn;
  if (handle != 0) {
    communicator = MPI_Comm_f2c(handle);
  }
  check(MPI_Comm_test_inter(communicator, &between), "MPI_Comm_test_inter");
  if (between != 0) {
    throw base::InvalidArgument(
        "[transport] an MPI intercommunicator was given: give one whose ranks form one group");
  }
  return communicator;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void gear_open_mpi(const MpiOptions& options,
                                                                     const char* version,
                                                                     MpiPlace& place) {
  if (std::strcmp(version, GEAR_VERSION) != 0) {
    throw base::TransportError(base::cat("[transport] libgear_mpi.so belongs to GEAR ",
                                         GEAR_VERSION, ", and this is GEAR ", version,
                                         ": install GEAR again"));
  }
  base::interrupt_check.store(options.interrupt_check);
  gear::mpi::require_runtime();
  const MPI_Comm communicator = gear::mpi::duplicate_of(
      original(options.communicator), options.timeout_s,
      base::cat("[transport] a rank of the MPI communicator did not take part in making a "
                "transport within ",
                options.timeout_s, " s: make it on all ranks"),
      [&] { options.failure->check(); });
  const Turn turn;
  check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  int size = 0;
  check(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  place.rank = static_cast<uint32_t>(rank);
  place.size = static_cast<uint32_t>(size);
  place.frames = std::make_unique<mpi::MpiFrames>(communicator, place.size, options.message_bytes);
}

static_assert(std::is_same_v<decltype(&gear_open_mpi), MpiEntry>);

}  // namespace gear::transport

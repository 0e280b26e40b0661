#include "mpi/arrival.h"

#include <array>
#include <limits>

#include "mpi/runtime.h"

namespace gear::mpi {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMostBytes = std::numeric_limits<int>::max();  // that MPI counts

}  // namespace

std::optional<Arrival> look_for(MPI_Comm communicator, int source, int tag) {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  const Turn turn;
  check(MPI_Improbe(source, tag, communicator, &there, &message, &status), "MPI_Improbe");
  if (there == 0) {
    return std::nullopt;
  }
  MPI_Count bytes = 0;
  check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
  return Arrival{message, status.MPI_SOURCE, static_cast<uint64_t>(bytes)};
}

MPI_Request receive(const Arrival& arrival, std::byte* room) {
  const Turn turn;
  const Counted counted(arrival.bytes);
  MPI_Message message = arrival.message;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Imrecv(room, counted.count, counted.type, &message, &request), "MPI_Imrecv");
  return request;
}

Counted::Counted(uint64_t bytes) {
  if (bytes <= kMostBytes) {
    count = static_cast<int>(bytes);
    return;
  }
  MPI_Datatype block = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(static_cast<int>(kBlockBytes), MPI_BYTE, &block),
        "MPI_Type_contiguous");
  const std::array<int, 2> counts{static_cast<int>(bytes / kBlockBytes),
                                  static_cast<int>(bytes % kBlockBytes)};
  const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(bytes - bytes % kBlockBytes)};
  const std::array<MPI_Datatype, 2> types{block, MPI_BYTE};
  check(MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type),
        "MPI_Type_create_struct");
  check(MPI_Type_commit(&type), "MPI_Type_commit");
  check(MPI_Type_free(&block), "MPI_Type_free");
  count = 1;
}

Counted::~Counted() {
  if (type != MPI_BYTE) {
    MPI_Type_free(&type);
  }
}

}  // namespace gear::mpi

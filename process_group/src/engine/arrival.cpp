#include "engine/arrival.h"

#include <array>
#include <chrono>
#include <limits>
#include <memory>
#include <new>
#include <thread>

#include "base/errors.h"
#include "transport/mpi/runtime.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMostBytes = std::numeric_limits<int>::max();  // that MPI counts
constexpr std::chrono::milliseconds kDropFor{250};

// Bytes as MPI counts them: one by one, or, of more than it counts, blocks and what is left.
class Counted {
 public:
  explicit Counted(uint64_t bytes) {
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
  ~Counted() {
    if (type != MPI_BYTE) {
      MPI_Type_free(&type);  // when the message has ended
    }
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  int count = 0;
  MPI_Datatype type = MPI_BYTE;
};

}  // namespace

std::optional<Arrival> Arrival::look(int peer, int tag, MPI_Comm communicator) {
  int there = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  check(MPI_Improbe(peer, tag, communicator, &there, &message, &status), "MPI_Improbe");
  if (there == 0) {
    return std::nullopt;
  }
  MPI_Count bytes = 0;
  check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
  return Arrival(message, status.MPI_SOURCE, static_cast<uint64_t>(bytes));
}

MPI_Request Arrival::receive(std::byte* to) {
  const Counted counted(bytes_);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Imrecv(to, counted.count, counted.type, &message_, &request), "MPI_Imrecv");
  return request;
}

void Arrival::drop() noexcept {
  std::unique_ptr<std::byte[]> room(new (std::nothrow) std::byte[bytes_]);
  if (!room) {
    return;
  }
  try {
    MPI_Request request = receive(room.get());
    const auto until = std::chrono::steady_clock::now() + kDropFor;
    for (int ended = 0; ended == 0;) {
      if (std::chrono::steady_clock::now() >= until ||
          MPI_Test(&request, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
        static_cast<void>(room.release());  // MPI may still write there
        return;
      }
      std::this_thread::yield();
    }
  } catch (const base::TransportError&) {
    // The caller has a better one.
  }
}

MPI_Request send(const std::byte* from, uint64_t bytes, int peer, int tag, MPI_Comm communicator) {
  const Counted counted(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(from, counted.count, counted.type, peer, tag, communicator, &request),
        "MPI_Isend");
  return request;
}

}  // namespace gear::process_group

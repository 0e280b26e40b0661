#include "c10d/engine/message.h"

#include <array>
#include <limits>
#include <thread>

#include "base/errors.h"
#include "transport/mpi/runtime.h"

namespace gear::c10d {
namespace {

using transport::mpi::check;

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMostBytes = std::numeric_limits<int>::max();  // that MPI counts
constexpr std::chrono::milliseconds kCancelFor{250};

// A type of `length` bytes, more than MPI counts: blocks, and what is left.
MPI_Datatype type_of(uint64_t length) {
  const auto num_blocks = static_cast<int>(length / kBlockBytes);
  const auto rest = static_cast<int>(length % kBlockBytes);
  MPI_Datatype block = MPI_DATATYPE_NULL;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  check(MPI_Type_contiguous(static_cast<int>(kBlockBytes), MPI_BYTE, &block),
        "MPI_Type_contiguous");
  const std::array<int, 2> counts{num_blocks, rest};
  const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(length - length % kBlockBytes)};
  const std::array<MPI_Datatype, 2> types{block, MPI_BYTE};
  check(MPI_Type_create_struct(2, counts.data(), places.data(), types.data(), &type),
        "MPI_Type_create_struct");
  check(MPI_Type_commit(&type), "MPI_Type_commit");
  check(MPI_Type_free(&block), "MPI_Type_free");
  return type;
}

}  // namespace

bool Message::may_post() const {
  return (!staging_ || staging_->have_all_come()) &&
         (kind_ != Kind::kSend || ring_->sends.is_first(peer_, tag_, place_));
}

void Message::post() {
  const bool large = bytes_.length > kMostBytes;
  MPI_Datatype type = large ? type_of(bytes_.length) : MPI_BYTE;
  const int count = large ? 1 : static_cast<int>(bytes_.length);
  const MPI_Comm communicator = ring_->communicator.messages();
  if (kind_ == Kind::kSend) {
    check(MPI_Isend(bytes_.bytes, count, type, peer_, tag_, communicator, &request_), "MPI_Isend");
    ring_->sends.posted(peer_, tag_);
  } else {
    check(MPI_Irecv(bytes_.bytes, count, type, peer_, tag_, communicator, &request_), "MPI_Irecv");
  }
  if (large) {
    check(MPI_Type_free(&type), "MPI_Type_free");  // when the message has ended
  }
  posted_ = true;
}

Step Message::advance() {
  const bool first = !posted_;
  if (first) {
    if (!may_post()) {
      return Step::kIdle;
    }
    post();
  }
  int ended = 0;
  MPI_Status status;
  const int code = MPI_Test(&request_, &ended, &status);
  int kind = MPI_SUCCESS;
  MPI_Error_class(code, &kind);
  if (kind == MPI_ERR_TRUNCATE) {
    throw base::TransportError(base::cat("[mpi] recv of ", bytes_.length, " bytes with tag ", tag_,
                                         ": the message that came is longer; give a tensor of the "
                                         "size and dtype that is sent"));
  }
  check(code, kind_ == Kind::kSend ? "sending by MPI" : "receiving by MPI");
  if (ended == 0) {
    return first ? Step::kMoved : Step::kIdle;
  }
  if (kind_ == Kind::kReceive) {
    MPI_Count bytes = 0;
    check(MPI_Get_elements_x(&status, MPI_BYTE, &bytes), "MPI_Get_elements_x");
    source_ = status.MPI_SOURCE;
    if (static_cast<uint64_t>(bytes) != bytes_.length) {
      throw base::TransportError(base::cat("[mpi] recv of ", bytes_.length, " bytes with tag ",
                                           tag_, ": rank ", source_, " sent ", bytes,
                                           "; give a tensor of the size and dtype that is sent"));
    }
  }
  return Step::kEnded;
}

std::optional<std::string> Message::late(Clock::time_point /*now*/) {
  if (!posted_) {
    return late_gpu();  // its own tensor, or that of a send before it
  }
  if (kind_ == Kind::kSend) {
    return base::cat("[mpi] rank ", peer_, " has not received what rank ",
                     ring_->communicator.place().rank, " sends with tag ", tag_, " within ",
                     timeout_s_, " s: look at the output of that rank");
  }
  return base::cat(
      "[mpi] ", peer_ == MPI_ANY_SOURCE ? std::string("no rank") : base::cat("rank ", peer_),
      peer_ == MPI_ANY_SOURCE ? " has sent rank " : " has not sent rank ",
      ring_->communicator.place().rank, " a message with tag ", tag_, " within ", timeout_s_,
      " s: look at the output of ", peer_ == MPI_ANY_SOURCE ? "all ranks" : "that rank");
}

void Message::cancel() noexcept {
  if (request_ == MPI_REQUEST_NULL || kind_ == Kind::kSend) {
    return;
  }
  MPI_Cancel(&request_);
  const auto until = Clock::now() + kCancelFor;
  for (int ended = 0; ended == 0 && Clock::now() < until;) {
    if (MPI_Test(&request_, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace gear::c10d

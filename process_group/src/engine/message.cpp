#include "engine/message.h"

#include <thread>

#include "base/errors.h"
#include "engine/arrival.h"
#include "transport/mpi/runtime.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

constexpr std::chrono::milliseconds kCancelFor{250};

}  // namespace

bool Message::may_begin() const {
  return (!staging_ || staging_->have_all_come()) &&
         (kind_ == Kind::kSend ? ring_->sends.is_first(peer_, tag_, place_)
                               : ring_->receives.is_first(place_));
}

// False: nothing has come yet.
bool Message::begin() {
  const MPI_Comm communicator = ring_->communicator.messages();
  if (kind_ == Kind::kSend) {
    request_ = send(bytes_.bytes, bytes_.length, peer_, tag_, communicator);
    ring_->sends.posted(peer_, tag_);
    begun_ = true;
    return true;
  }
  auto come = Arrival::look(peer_, tag_, communicator);
  if (!come) {
    return false;
  }
  ring_->receives.leave(place_);
  begun_ = true;
  source_ = come->source();
  if (come->bytes() != bytes_.length) {
    come->drop();
    throw base::TransportError(base::cat("[mpi] recv of ", bytes_.length, " bytes with tag ", tag_,
                                         ": rank ", ring_->communicator.shown(source_), " sent ",
                                         come->bytes(),
                                         "; give a tensor of the size and dtype that is sent"));
  }
  request_ = come->receive(bytes_.bytes);
  return true;
}

Step Message::advance() {
  const bool first = !begun_;
  if (first && !(may_begin() && begin())) {
    return Step::kIdle;
  }
  int ended = 0;
  check(MPI_Test(&request_, &ended, MPI_STATUS_IGNORE),
        kind_ == Kind::kSend ? "sending by MPI" : "receiving by MPI");
  if (ended != 0) {
    return Step::kEnded;
  }
  return first ? Step::kMoved : Step::kIdle;
}

std::optional<std::string> Message::late(Clock::time_point /*now*/) {
  if (!begun_ && (kind_ == Kind::kSend || (staging_ && !staging_->have_all_come()))) {
    return late_gpu();  // its own tensor, or that of a send before it
  }
  if (kind_ == Kind::kSend) {
    return base::cat(
        "[mpi] rank ", ring_->communicator.shown(peer_), " has not received what rank ",
        ring_->communicator.shown(ring_->communicator.place().rank), " sends with tag ", tag_,
        " within ", timeout_s_, " s: look at the output of that rank");
  }
  return base::cat("[mpi] ",
                   peer_ == MPI_ANY_SOURCE ? std::string("no rank")
                                           : base::cat("rank ", ring_->communicator.shown(peer_)),
                   peer_ == MPI_ANY_SOURCE ? " has sent rank " : " has not sent rank ",
                   ring_->communicator.shown(ring_->communicator.place().rank),
                   " a message with tag ", tag_, " within ", timeout_s_,
                   " s: look at the output of ",
                   peer_ == MPI_ANY_SOURCE ? "all ranks" : "that rank");
}

void Message::cancel() noexcept {
  if (kind_ == Kind::kSend) {
    return;
  }
  if (!begun_) {
    ring_->receives.leave(place_);
    begun_ = true;
    return;
  }
  const auto until = Clock::now() + kCancelFor;  // it is on its way: MPI takes nothing back
  for (int ended = 0; ended == 0 && Clock::now() < until;) {
    if (MPI_Test(&request_, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace gear::process_group

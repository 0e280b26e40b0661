#include "engine/message.h"

#include "base/errors.h"

namespace gear::process_group {

bool Message::may_begin() const {
  return (!staging_ || staging_->have_all_come()) &&
         (kind_ == Kind::kSend ? ring_->sends.is_first(peer_, tag_, place_)
                               : ring_->receives.is_first(place_));
}

// False: nothing has come yet.
bool Message::begin() {
  Wire& wire = *ring_->wire;
  if (kind_ == Kind::kSend) {
    request_ = wire.send(address(), bytes_.bytes, bytes_.length);
    ring_->sends.posted(peer_, tag_);
    begun_ = true;
    return true;
  }
  const auto come = wire.look(address());
  if (!come) {
    return false;
  }
  ring_->receives.leave(place_);
  begun_ = true;
  source_ = come->source;
  if (come->bytes != bytes_.length) {
    wire.drop(*come);
    throw base::TransportError(base::cat("[mpi] recv of ", bytes_.length, " bytes with tag ", tag_,
                                         ": rank ", ring_->group.shown(source_), " sent ",
                                         come->bytes,
                                         "; give a tensor of the size and dtype that is sent"));
  }
  request_ = wire.take(*come, bytes_.bytes);
  return true;
}

Step Message::advance() {
  const bool first = !begun_;
  if (first && !(may_begin() && begin())) {
    return Step::kIdle;
  }
  if (request_ == Wire::Request::kNone || ring_->wire->test({&request_, 1})) {
    return Step::kEnded;
  }
  return first ? Step::kMoved : Step::kIdle;
}

std::optional<std::string> Message::late(Time /*now*/) {
  if (!begun_ && (kind_ == Kind::kSend || (staging_ && !staging_->have_all_come()))) {
    return late_gpu();  // its own tensor, or that of a send before it
  }
  if (kind_ == Kind::kSend) {
    return base::cat("[mpi] rank ", ring_->group.shown(peer_), " has not received what rank ",
                     ring_->group.shown(ring_->place.rank), " sends with tag ", tag_, " within ",
                     timeout_s_, " s: look at the output of that rank");
  }
  return base::cat("[mpi] ",
                   peer_ == Wire::kAnyone ? std::string("no rank")
                                          : base::cat("rank ", ring_->group.shown(peer_)),
                   peer_ == Wire::kAnyone ? " has sent rank " : " has not sent rank ",
                   ring_->group.shown(ring_->place.rank), " a message with tag ", tag_, " within ",
                   timeout_s_, " s: look at the output of ",
                   peer_ == Wire::kAnyone ? "all ranks" : "that rank");
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
  // It is on its way, and nothing takes it back.
  if (ring_->group.failure().empty()) {
    ring_->wire->settle({&request_, 1}, true);
  } else {
    ring_->settle({&request_, 1});
  }
}

}  // namespace gear::process_group

#include "ranks/comparison.h"

#include <algorithm>
#include <bit>

#include "base/errors.h"

namespace gear::process_group {

Comparison::Comparison(Ring& ring, uint64_t number, const Signature& own)
    : ring_(ring),
      number_(number),
      tag_(Group::comparison_tag_of(number)),
      own_(std::make_unique<Signature>(own)) {
  sent_.reserve(std::bit_width(static_cast<unsigned>(ring.wire->place().size)));
}

Comparison::~Comparison() {
  if (!sent_.empty()) {
    static_cast<void>(own_.release());  // of a group that has failed: it may still be read
  }
}

void Comparison::cancel() noexcept {
  if (ring_.settle(sent_)) {
    sent_.clear();
  }
}

bool Comparison::advance() {
  Wire& wire = *ring_.wire;
  const Place place = wire.place();
  for (; step() < place.size; ++num_heard_) {
    if (num_sent_ == num_heard_) {
      sent_.push_back(wire.send({Wire::Line::kCalls, (place.rank + step()) % place.size, tag_},
                                reinterpret_cast<const std::byte*>(own_.get()), sizeof(Signature)));
      ++num_sent_;
    }
    const int peer = waited_for();
    const auto come = wire.look({Wire::Line::kCalls, peer, tag_});
    if (!come) {
      return false;
    }
    Signature theirs;
    if (come->bytes != sizeof theirs) {
      wire.drop(*come);
      throw base::TransportError(base::cat("[mpi] rank ", ring_.group.shown(peer), " says in ",
                                           come->bytes, " bytes what ", sizeof theirs,
                                           " bytes say here (call ", number_,
                                           " of the group): run the same build on all ranks"));
    }
    wire.read(*come, reinterpret_cast<std::byte*>(&theirs));
    if (theirs != *own_) {
      throw base::TransportError(difference(ring_.group.shown(peer), theirs,
                                            ring_.group.shown(place.rank), *own_, number_));
    }
  }
  if (!sent_.empty()) {
    wire.test(sent_);
    std::erase(sent_, Wire::Request::kNone);
  }
  return sent_.empty();
}

int Comparison::waited_for() const noexcept {
  const Place place = ring_.wire->place();
  return step() < place.size ? (place.rank + place.size - step()) % place.size : -1;
}

}  // namespace gear::process_group

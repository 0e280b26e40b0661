#include "ranks/comparison.h"

#include <bit>

#include "base/errors.h"
#include "transport/mpi/runtime.h"

namespace gear::process_group {
namespace {

using transport::mpi::check;

}  // namespace

Comparison::Comparison(Communicator& communicator, uint64_t number, const Signature& own)
    : communicator_(communicator),
      number_(number),
      tag_(Communicator::comparison_tag_of(number)),
      own_(std::make_unique<Signature>(own)) {
  sent_.reserve(std::bit_width(static_cast<unsigned>(communicator.place().size)));
}

Comparison::~Comparison() {
  if (!sent_.empty()) {
    static_cast<void>(own_.release());  // of a group that has failed: MPI may still read it
  }
}

bool Comparison::advance() {
  const Place place = communicator_.place();
  const MPI_Comm ranks = communicator_.collectives();
  for (; step() < place.size; ++num_heard_) {
    if (num_sent_ == num_heard_) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Isend(own_.get(), sizeof(Signature), MPI_BYTE, (place.rank + step()) % place.size,
                      tag_, ranks, &request),
            "MPI_Isend");
      sent_.push_back(request);
      ++num_sent_;
    }
    const int peer = waited_for();
    int there = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    check(MPI_Improbe(peer, tag_, ranks, &there, &message, &status), "MPI_Improbe");
    if (there == 0) {
      return false;
    }
    int bytes = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    Signature theirs;
    if (bytes != static_cast<int>(sizeof theirs)) {
      throw base::TransportError(base::cat("[mpi] rank ", communicator_.shown(peer), " says in ",
                                           bytes, " bytes what ", sizeof theirs,
                                           " bytes say here (call ", number_,
                                           " of the group): run the same build on all ranks"));
    }
    check(MPI_Mrecv(&theirs, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    if (theirs != *own_) {
      throw base::TransportError(difference(communicator_.shown(peer), theirs,
                                            communicator_.shown(place.rank), *own_, number_));
    }
  }
  if (sent_.empty()) {
    return true;
  }
  int all_ended = 0;
  check(MPI_Testall(static_cast<int>(sent_.size()), sent_.data(), &all_ended, MPI_STATUSES_IGNORE),
        "MPI_Testall");
  if (all_ended != 0) {
    sent_.clear();
  }
  return all_ended != 0;
}

int Comparison::waited_for() const noexcept {
  const Place place = communicator_.place();
  return step() < place.size ? (place.rank + place.size - step()) % place.size : -1;
}

}  // namespace gear::process_group

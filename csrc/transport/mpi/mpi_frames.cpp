#include "transport/mpi/mpi_frames.h"

#include <unistd.h>

#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "mpi/arrival.h"
#include "mpi/runtime.h"

namespace gear::transport::mpi {
namespace {

using gear::mpi::check;
using gear::mpi::Turn;
using messages::FrameHead;
using messages::FrameKind;

constexpr int kTag = 1;
constexpr uint32_t kToOneRank = 4;
constexpr uint32_t kControlsToOneRank = 4;  // more
constexpr int kArrivals = 32;               // looked for at a time

}  // namespace

MpiFrames::MpiFrames(MPI_Comm communicator, uint32_t size, uint64_t payload_bytes)
    : communicator_(communicator),
      payload_bytes_(payload_bytes),
      pid_(::getpid()),
      under_way_(size) {}

MpiFrames::~MpiFrames() {
  const bool is_here = pid_ == ::getpid() && gear::mpi::is_running();
  if (!open_.empty() && !(is_here && gear::mpi::settled(open_))) {
    for (Moving& moving : moving_) {
      static_cast<void>(moving.room.release());
    }
    if (is_here) {
      gear::mpi::never_finalise();
    }
  } else if (is_here && may_be_freed_) {
    const Turn turn;
    MPI_Comm_free(&communicator_);
  }
}

bool MpiFrames::send(uint32_t rank, const FrameHead& head, ConstBytes bytes, uint32_t& leaving) {
  const bool control = head.kind >= FrameKind::kGaveUp;
  if (under_way_[rank] >= kToOneRank + (control ? kControlsToOneRank : 0)) {
    return false;
  }
  heed(head.kind);
  Moving moving{rank, sizeof head + bytes.size(), rooms_.take(sizeof head + bytes.size()),
                &leaving};
  std::memcpy(moving.room.get(), &head, sizeof head);
  if (!bytes.empty()) {
    std::memcpy(moving.room.get() + sizeof head, bytes.data(), bytes.size());
  }
  make_place();
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const Turn turn;
    check(MPI_Isend(moving.room.get(), static_cast<int>(moving.bytes), MPI_BYTE,
                    static_cast<int>(rank), kTag, communicator_, &request),
          "sending by MPI");
  }
  ++under_way_[rank];
  ++leaving;
  ++counts_.sent;
  counts_.sent_bytes += moving.bytes;
  open_.push_back(request);
  moving_.push_back(std::move(moving));
  return true;
}

// For one more: what is under way is known to both, whatever has no memory.
void MpiFrames::make_place() {
  if (open_.size() == open_.capacity() || moving_.size() == moving_.capacity()) {
    open_.reserve(2 * open_.size() + 1);
    moving_.reserve(2 * moving_.size() + 1);
  }
}

bool MpiFrames::progress(const Arrived& arrived) {
  begin_to_receive();
  std::exception_ptr failure;
  try {
    if (requests_.ended(open_).empty()) {
      return false;
    }
  } catch (const base::TransportError&) {
    failure = std::current_exception();
    give_up_failed();
  }
  // Those that have ended go behind the others.
  size_t kept = 0;
  for (size_t i = 0; i < open_.size(); ++i) {
    if (open_[i] != MPI_REQUEST_NULL) {
      std::swap(open_[kept], open_[i]);
      std::swap(moving_[kept], moving_[i]);
      ++kept;
    }
  }
  const auto first = moving_.begin() + static_cast<std::ptrdiff_t>(kept);
  ended_.clear();
  ended_.insert(ended_.end(), std::make_move_iterator(first),
                std::make_move_iterator(moving_.end()));
  open_.resize(kept);
  moving_.erase(first, moving_.end());
  for (const Moving& one : ended_) {
    if (one.rank != kReceives) {
      --under_way_[one.rank];
      --*one.leaving;
    }
  }
  for (const Moving& one : ended_) {
    if (one.rank == kReceives && one.room) {
      take(one, arrived);
    }
  }
  ended_.clear();
  if (failure) {
    std::rethrow_exception(failure);
  }
  return true;
}

// Of what has failed, MPI may still read or write the room.
void MpiFrames::give_up_failed() noexcept {
  for (const int place : requests_.failed()) {
    static_cast<void>(moving_[static_cast<size_t>(place)].room.release());
    open_[static_cast<size_t>(place)] = MPI_REQUEST_NULL;
    may_be_freed_ = false;
    gear::mpi::never_finalise();
  }
}

void MpiFrames::begin_to_receive() {
  for (int i = 0; i < kArrivals; ++i) {
    const auto come = gear::mpi::look_for(communicator_, MPI_ANY_SOURCE, kTag);
    if (!come) {
      return;
    }
    Moving moving{kReceives, come->bytes, rooms_.take(come->bytes), nullptr};
    make_place();
    open_.push_back(gear::mpi::receive(*come, moving.room.get()));
    moving_.push_back(std::move(moving));
  }
}

void MpiFrames::take(const Moving& come, const Arrived& arrived) {
  ++counts_.received;
  counts_.received_bytes += come.bytes;
  FrameHead head{};
  if (come.bytes < sizeof head) {
    return;
  }
  std::memcpy(&head, come.room.get(), sizeof head);
  heed(head.kind);
  if (head.bytes == come.bytes - sizeof head) {
    arrived(head, {come.room.get() + sizeof head, static_cast<size_t>(head.bytes)});
  }
}

// What is no part of a call is not always taken, and after words nothing is.
void MpiFrames::heed(FrameKind kind) noexcept {
  may_be_freed_ = may_be_freed_ && kind < FrameKind::kGaveUp;
  if (kind == FrameKind::kGaveUp) {
    gear::mpi::never_finalise();
  }
}

}  // namespace gear::transport::mpi

#include "transport/mpi/mpi_frames.h"

#include <unistd.h>

#include <cstring>
#include <utility>

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
constexpr int kArrivals = 32;  // looked for at a time

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

bool MpiFrames::send(uint32_t rank, const FrameHead& head, ConstBytes bytes) {
  if (under_way_[rank] >= kToOneRank) {
    return false;
  }
  heed(head.kind);
  Moving moving{rank, sizeof head + bytes.size(), rooms_.take(sizeof head + bytes.size())};
  std::memcpy(moving.room.get(), &head, sizeof head);
  if (!bytes.empty()) {
    std::memcpy(moving.room.get() + sizeof head, bytes.data(), bytes.size());
  }
  open_.push_back(MPI_REQUEST_NULL);
  moving_.push_back(std::move(moving));
  {
    const Turn turn;
    check(MPI_Isend(moving_.back().room.get(), static_cast<int>(moving_.back().bytes), MPI_BYTE,
                    static_cast<int>(rank), kTag, communicator_, &open_.back()),
          "sending by MPI");
  }
  ++under_way_[rank];
  ++counts_.sent;
  counts_.sent_bytes += moving_.back().bytes;
  return true;
}

bool MpiFrames::progress(const Arrived& arrived) {
  begin_to_receive();
  const std::span<const int> places = requests_.ended(open_);
  if (places.empty()) {
    return false;
  }
  ended_.clear();
  for (const int place : places) {
    ended_.push_back(std::move(moving_[static_cast<size_t>(place)]));
  }
  size_t kept = 0;
  for (size_t i = 0; i < open_.size(); ++i) {
    if (moving_[i].room) {
      std::swap(open_[kept], open_[i]);
      std::swap(moving_[kept], moving_[i]);
      ++kept;
    }
  }
  open_.resize(kept);
  moving_.erase(moving_.begin() + static_cast<std::ptrdiff_t>(kept), moving_.end());
  for (Moving& one : ended_) {
    if (one.rank == kReceives) {
      take(one, arrived);
    } else {
      --under_way_[one.rank];
    }
    rooms_.give(std::move(one.room), one.bytes);
  }
  return true;
}

void MpiFrames::begin_to_receive() {
  for (int i = 0; i < kArrivals; ++i) {
    const auto come = gear::mpi::look_for(communicator_, MPI_ANY_SOURCE, kTag);
    if (!come) {
      return;
    }
    open_.push_back(MPI_REQUEST_NULL);
    moving_.push_back({kReceives, come->bytes, rooms_.take(come->bytes)});
    open_.back() = gear::mpi::receive(*come, moving_.back().room.get());
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

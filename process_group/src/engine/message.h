#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/call.h"
#include "schedule/schedule.h"

namespace gear::process_group {

/// A message between two ranks, in one piece, of any length.
class Message final : public Call {
 public:
  /// `peer` is MPI_ANY_SOURCE to receive from whoever sends. `staging`: if `bytes` stand for those
  /// of a GPU. Sends to one peer with one tag, and receives of the same message, begin in the order
  /// in which they are made.
  Message(std::shared_ptr<Ring> ring, Kind kind, Block bytes, int peer, int tag, double timeout_s,
          std::shared_ptr<Staging> staging)
      : Call(std::move(ring), kind, timeout_s),
        bytes_(bytes),
        peer_(peer),
        tag_(tag),
        staging_(std::move(staging)),
        place_(kind == Kind::kSend ? ring_->sends.take_place(peer, tag)
                                   : ring_->receives.take_place(peer, tag)) {}

  Step advance() override;
  std::optional<std::string> late(Clock::time_point now) override;
  void cancel() noexcept override;
  /// A message that was not received has touched nobody.
  bool shared() const noexcept override { return kind_ == Kind::kSend; }

 private:
  bool may_begin() const;
  bool begin();

  Block bytes_;
  int peer_;
  int tag_;
  std::shared_ptr<Staging> staging_;
  uint64_t place_;  // among the group's sends, or receives, that have not begun
  bool begun_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace gear::process_group

#pragma once

#include <mpi.h>

#include <memory>
#include <optional>
#include <string>

#include "c10d/call.h"

namespace gear::c10d {

/// A message between two ranks, in one piece, of any length.
class Message final : public Call {
 public:
  /// `peer` is MPI_ANY_SOURCE to receive from whoever sends.
  Message(std::shared_ptr<Ring> ring, Kind kind, Block bytes, int peer, int tag, double timeout_s)
      : Call(std::move(ring), kind, timeout_s), bytes_(bytes), peer_(peer), tag_(tag) {}

  Step advance() override;
  std::optional<std::string> late(Clock::time_point now) override;
  void cancel() noexcept override;
  /// A message that was not received has touched nobody.
  bool shared() const noexcept override { return kind_ == Kind::kSend; }

 private:
  void post();

  Block bytes_;
  int peer_;
  int tag_;
  bool posted_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace gear::c10d

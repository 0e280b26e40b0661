#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/carrier.h"

namespace gear::process_group {

/// A message between two ranks, in one piece, of any length.
class Message final : public Call {
 public:
  /// Sends to one peer with one tag, and receives of the same message, begin in the order in which
  /// they are made.
  Message(std::shared_ptr<Ring> ring, const Letter& letter, double timeout_s)
      : Call(std::move(ring), letter.kind, timeout_s),
        bytes_(letter.bytes),
        peer_(letter.peer),
        tag_(letter.tag),
        staging_(letter.staging),
        place_(kind_ == Kind::kSend ? ring_->sends.take_place(peer_, tag_)
                                    : ring_->receives.take_place(peer_, tag_)) {}

  Step advance() override;
  std::optional<std::string> late(Time now) override;
  void cancel() noexcept override;
  /// A message that was not received has touched nobody.
  bool shared() const noexcept override { return kind_ == Kind::kSend; }

 private:
  bool may_begin() const;
  bool begin();

  Wire::Address address() const { return {Wire::Line::kMessages, peer_, tag_}; }

  Block bytes_;
  int peer_;
  int tag_;
  std::shared_ptr<Staging> staging_;
  uint64_t place_;  // among the group's sends, or receives, that have not begun
  bool begun_ = false;
  Wire::Request request_ = Wire::Request::kNone;
};

}  // namespace gear::process_group

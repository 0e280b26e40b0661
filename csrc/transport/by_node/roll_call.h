#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gear::transport {

/// Finds out who of a group is missing, beside the calls of its transports: a rank that waits asks
/// those that it waits for, and whom these say that they wait for. Who answers is in a call too.
///
/// A rank answers while it is between come() and go(), whenever it calls wait_for() or looks at the
/// transport that this is of (Transport::look).
class RollCall {
 public:
  virtual ~RollCall() = default;
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  /// This rank is in a call from here on; nobody has been asked in it.
  virtual void come() = 0;
  /// It is in none.
  virtual void go() noexcept = 0;

  /// Whom this rank waits for: told to those that ask.
  virtual void wait_for(std::span<const uint32_t> awaited) = 0;
  /// Asks those, and whom they wait for; returns those that have been asked since come() and have
  /// not answered in the time that an answer takes. Waits for nobody: call it again.
  virtual std::vector<uint32_t> ask() = 0;

 protected:
  RollCall() = default;
};

}  // namespace gear::transport

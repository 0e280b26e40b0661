#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "schedule/place.h"

namespace gear::process_group {

/// Messages between the ranks of a process group. Those of one rank to another that have the same
/// line and tag come in the order in which they were sent. Nothing waits: who needs something looks
/// again and again. The engine's lock is held around all calls but constructor and destructor;
/// what is not noexcept throws TransportError.
class Wire {
 public:
  /// What goes by one is never found by the other.
  enum class Line : uint8_t { kCalls, kMessages };
  static constexpr int kAnyone = -1;

  /// Of a message: to `peer`, or from it.
  struct Address {
    Line line;
    int peer;
    int tag;
  };
  /// A message that has come, and has not been received. Its length is looked at first: to receive
  /// what is longer than its room is no error that MPI must report.
  struct Arrival {
    int source;
    uint64_t bytes;
    uint64_t handle;  ///< the wire's own
  };
  /// A message under way. What it reads or writes must stay until it has ended.
  enum class Request : uint64_t { kNone = 0 };

  Wire() = default;
  virtual ~Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// This rank among those that messages reach: the first ones of the group, or all of it.
  virtual Place place() const noexcept = 0;
  /// Tags that users may give: 0 to this.
  virtual int highest_tag() const noexcept = 0;

  virtual Request send(const Address& to, const std::byte* from, uint64_t bytes) = 0;
  /// The first one from that peer, or from kAnyone, if there is one.
  virtual std::optional<Arrival> look(const Address& from) = 0;
  // With what was found one of these is called, once.
  /// Begins to receive all of its bytes.
  virtual Request take(const Arrival& come, std::byte* to) = 0;
  /// Receives it, where it is so short that it has been sent at once.
  virtual void read(const Arrival& come, std::byte* to) = 0;
  /// Lets its sender go on; nobody reads it.
  virtual void drop(const Arrival& come) noexcept = 0;

  /// Those that have ended become kNone; whether there are any. So they do where it throws, and
  /// what has failed never settles.
  virtual bool test(std::span<Request> open) = 0;
  /// Whether all of them have ended, or do in a moment if it `waits`. If not, what they read and
  /// write must stay for ever.
  virtual bool settle(std::span<Request> open, bool waits) noexcept = 0;
  /// Sends a copy of some bytes, and asks no more after it.
  virtual void tell(const Address& to, const void* bytes, size_t size) noexcept = 0;
  /// The group has failed: messages of it may be under way for ever.
  virtual void abandon() noexcept = 0;
};

}  // namespace gear::process_group

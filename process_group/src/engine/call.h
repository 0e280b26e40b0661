#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ranks/ring.h"

namespace gear::process_group {

enum class Step : uint8_t { kIdle, kMoved, kEnded };

/// An operation of this rank that the engine carries on. The engine's lock is held around all
/// virtual functions; `done` and `failure` are read without.
class Call {
 public:
  Call(std::shared_ptr<Ring> ring, Kind kind, double timeout_s)
      : ring_(std::move(ring)), kind_(kind), timeout_s_(timeout_s) {}
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Posts what can be posted, and looks at what has come. Throws TransportError.
  virtual Step advance() = 0;
  /// Past its time: the words with which it fails, or nothing if more time is needed to find them.
  virtual std::optional<std::string> late(Time now) = 0;
  /// Sees to it that nothing is written to the caller's memory later.
  virtual void cancel() noexcept = 0;
  /// Of a collective call in its group; -1 of a message.
  virtual int64_t number() const noexcept { return -1; }
  /// Whether its failure ends the group.
  virtual bool shared() const noexcept { return true; }

  Ring& ring() noexcept { return *ring_; }
  Kind kind() const noexcept { return kind_; }
  double timeout_s() const noexcept { return timeout_s_; }
  /// From `now` on it may take so much longer, if that is less than it had.
  void limit(double timeout_s, Time now);
  /// The rank that a received message came from; -1 otherwise.
  int source() const noexcept { return source_; }

  Time deadline = Time::max();
  // Each is called once, without a lock, by a thread that carries on calls or follows one.
  /// Before `done` is set. All operations wait for it: it takes no lock of the host program.
  std::function<void()> on_end;
  /// After that; it may.
  std::function<void()> on_done;
  std::string failure;  ///< empty: none
  std::atomic<bool> done{false};

 protected:
  /// The words of a call whose tensors a GPU has not given in time.
  std::string late_gpu() const;

  std::shared_ptr<Ring> ring_;
  Kind kind_;
  double timeout_s_;
  int source_ = -1;
};

}  // namespace gear::process_group

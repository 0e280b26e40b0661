#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "transport/messages/frame.h"
#include "transport/transport.h"

namespace gear::transport::messages {

/// Of words with which a rank gives up: every engine sends them at once.
constexpr size_t kMostWords = 1000;

/// What has gone and come, heads of frames included.
struct FrameCounts {
  uint64_t sent = 0;
  uint64_t sent_bytes = 0;
  uint64_t received = 0;
  uint64_t received_bytes = 0;
};

/// How a rank waits that has nothing to do: it calls again, yields the CPU, then naps.
struct Patience {
  uint32_t yields;
  double longest_nap_s;  ///< where no file tells of what comes
};

/// Where frames begin and arrive: an engine that carries them between all ranks, one by one, in any
/// order. What is sent and received is copied, so that nothing of an engine ever reads or writes
/// memory of its caller. One thread at a time.
class Frames {
 public:
  using Arrived = std::function<void(const FrameHead& head, ConstBytes bytes)>;

  virtual ~Frames() = default;
  Frames(const Frames&) = delete;
  Frames& operator=(const Frames&) = delete;

  /// "libfabric", "mpi".
  virtual std::string_view name() const noexcept = 0;
  /// Of a frame, behind its head; kMostWords or more.
  virtual uint64_t payload_bytes() const noexcept = 0;
  virtual Patience patience() const noexcept = 0;
  /// Whether it does no harm to send what nobody takes any more.
  virtual bool may_go_unread() const noexcept = 0;

  /// Begins to send; false: not now. `leaving` counts the frame until it has left, in progress().
  /// Throws TransportError where the rank cannot be reached.
  virtual bool send(uint32_t rank, const FrameHead& head, ConstBytes bytes, uint32_t& leaving) = 0;
  /// Frames that have not left, whoever sent them.
  virtual uint32_t under_way(uint32_t rank) const = 0;
  /// Lets the engine work and hands over what has come: that is whether anything happened. Throws
  /// TransportError where a frame could not be sent.
  virtual bool progress(const Arrived& arrived) = 0;

  /// Begins to see whether the process of a rank on another machine ends, where the engine can.
  virtual void watch(uint32_t) {}
  /// Whether it has, of a rank that is watched.
  virtual bool has_ended(uint32_t) { return false; }

  /// A file that is readable once progress() may have something to do; -1: there is none.
  virtual int wait_file() const { return -1; }
  /// Whether a thread may sleep on it now.
  virtual bool may_sleep() const { return true; }

  const FrameCounts& counts() const { return counts_; }

 protected:
  Frames() = default;

  FrameCounts counts_;
};

}  // namespace gear::transport::messages

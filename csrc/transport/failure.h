#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace gear::transport {

/// What ended a group, as one of its ranks knows it: shared by all transports of that rank.
///
/// A transport that fails tells it here. Then every wait of the rank in any of them ends, and each
/// of them passes the words on to its other ranks, which so hear of it in whatever call they are.
class Failure {
 public:
  /// A transport that wants to know.
  class Listener {
   public:
    /// Passes `text` on to the other ranks. From any thread; must not call the Failure.
    virtual void hear(const std::string& text) noexcept = 0;
    /// Waits until that has left this process, some seconds at most. As hear().
    virtual void finish() noexcept {}

   protected:
    ~Listener() = default;
  };

  /// A listener's time of listening.
  class Hearing {
   public:
    /// Hears at once what has been told before.
    Hearing(std::shared_ptr<Failure> failure, Listener& listener);
    ~Hearing();
    Hearing(const Hearing&) = delete;
    Hearing& operator=(const Hearing&) = delete;

   private:
    std::shared_ptr<Failure> failure_;
    Listener* listener_;
  };

  /// The first words count. Any thread. A rank that was killed may have left memory behind that the
  /// others had not mapped: it is removed.
  void tell(std::string_view text) noexcept;
  /// Waits until the words have left for the other ranks, some seconds at most: for a process that
  /// is about to end.
  void finish_telling() noexcept;
  /// What was told; empty: nothing.
  std::string text() const;
  /// Throws TransportError once something has been told.
  void check() const;

  /// The call of the user's program that this rank is in, for the words of an interrupt; empty:
  /// what the transport is in. Any thread.
  void set_doing(std::string what);
  /// Tells that the exception that is being handled, no error of a transport, has ended this rank's
  /// `call` of one: an interrupt by the host program, or no memory.
  void tell_interrupted(uint32_t rank, std::string_view call) noexcept;

 private:
  std::atomic<bool> told_{false};
  mutable std::mutex mutex_;
  std::string text_;
  std::string doing_;
  std::vector<Listener*> listeners_;
};

/// `given`, or one of the transport's own.
std::shared_ptr<Failure> or_own(std::shared_ptr<Failure> given);

}  // namespace gear::transport

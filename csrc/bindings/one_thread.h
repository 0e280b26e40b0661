#pragma once

#include <atomic>
#include <thread>

#include "base/errors.h"
#include "base/threads/origin.h"

namespace gear::bindings {

/// An object that one thread at a time may call: a call during another thread's is refused, where
/// it would else work at what that one has half done.
///
/// In a forked child nobody has a turn or waits for one: a call that another thread was in ends in
/// the parent alone, and what the object refuses there it says itself.
class OneThread {
 public:
  /// `refusal`: the message, as base::Error has it.
  explicit OneThread(const char* refusal) : refusal_(refusal) {}

  /// A call, from construction to destruction. Throws InvalidArgument during another's.
  class Turn {
   public:
    /// `waits`: for another's to return, without the GIL, in place of throwing.
    explicit Turn(OneThread& object, bool waits = false) : caller_(object.caller_) {
      if (object.origin_.forked()) {
        return;
      }
      std::thread::id other;
      while (!caller_.compare_exchange_strong(other, std::this_thread::get_id())) {
        if (!waits) {
          throw base::InvalidArgument(object.refusal_);
        }
        caller_.wait(other);
        other = {};
      }
    }
    ~Turn() {
      caller_.store(std::thread::id());
      caller_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<std::thread::id>& caller_;
  };

  /// Whether it is this thread that is in a call.
  bool is_inside() const { return caller_.load() == std::this_thread::get_id(); }

 private:
  const char* refusal_;
  base::Origin origin_;
  std::atomic<std::thread::id> caller_{};
};

}  // namespace gear::bindings

#pragma once

#include <atomic>
#include <string>

#include "base/errors.h"

namespace gear::bindings {

/// An object that one thread at a time may call: a call during another thread's is refused, where
/// it would else work at what that one has half done.
class OneThread {
 public:
  /// `refusal`: the message, as base::Error has it.
  explicit OneThread(const char* refusal) : refusal_(refusal) {}

  /// A call, from construction to destruction. Throws InvalidArgument during another's.
  class Turn {
   public:
    explicit Turn(OneThread& object) : busy_(object.busy_) {
      if (busy_.exchange(true, std::memory_order_acquire)) {
        throw base::InvalidArgument(object.refusal_);
      }
    }
    ~Turn() { busy_.store(false, std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<bool>& busy_;
  };

 private:
  const char* refusal_;
  std::atomic<bool> busy_{false};
};

}  // namespace gear::bindings

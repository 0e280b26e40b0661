#pragma once

#include <atomic>

namespace gear::base {

/// What a host program does when a thread of its own is about to wait in the core for another
/// thread, and when it has waited: Python gives its interpreter lock up meanwhile, since the other
/// thread may need it. Nothing by default.
struct BlockingHooks {
  void* (*begin)();  ///< any thread; what it returns is for `end`
  void (*end)(void*);
};

inline std::atomic<const BlockingHooks*> blocking_hooks{nullptr};

/// Stands around a wait.
class Blocking {
 public:
  Blocking() : hooks_(blocking_hooks.load(std::memory_order_acquire)) {
    if (hooks_ != nullptr) {
      state_ = hooks_->begin();
    }
  }
  ~Blocking() {
    if (hooks_ != nullptr) {
      hooks_->end(state_);
    }
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  const BlockingHooks* hooks_;
  void* state_ = nullptr;
};

}  // namespace gear::base

#pragma once

#include <functional>

namespace gear::base {

/// Keeps an object whole in forked children. One that another thread changes while the process is
/// forked would be half changed in the child for ever, and its lock held by a thread that is not
/// there.
///
///     forking thread   pause() of all ── fork ─┬─ resume(kParent) of all
///                                              └─ resume(kChild) of all, in the child
///
/// In the order in which the objects were made. The calls must not throw, nor make or end a
/// ForkPause; pause() may keep the fork waiting for a while. A member of this type is the last one.
class ForkPause {
 public:
  enum class Side : bool { kParent, kChild };

  /// Throws OutOfMemory.
  ForkPause(std::function<void()> pause, std::function<void(Side)> resume);
  ~ForkPause();
  ForkPause(const ForkPause&) = delete;
  ForkPause& operator=(const ForkPause&) = delete;

 private:
  static void pause_all();
  static void resume_all(Side side);

  std::function<void()> pause_;
  std::function<void(Side)> resume_;
};

}  // namespace gear::base

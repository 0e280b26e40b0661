#pragma once

#include <functional>
#include <thread>

#include "base/threads/origin.h"

namespace gear::base {

/// A thread of the core. It takes no signals, which belong to the program's own threads, and has a
/// name that ps -L, top -H and debuggers show.
///
/// Its destructor joins it, so that the owner tells it before to end: a member of this type is the
/// last one, and what it works with lives longer. In a forked child there is no such thread, and
/// nobody waits for it.
class OwnThread {
 public:
  /// None.
  OwnThread() = default;
  /// `name`: up to 15 characters. Throws std::system_error where the system refuses a thread.
  OwnThread(const char* name, std::function<void()> run);
  OwnThread(OwnThread&&) = default;
  OwnThread& operator=(OwnThread&& other) noexcept;
  ~OwnThread() { join(); }

  /// Returns when the thread has ended, at once if there is none.
  void join() noexcept;

 private:
  Origin origin_;
  std::thread thread_;
};

}  // namespace gear::base

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "base/threads/fork_pause.h"
#include "base/threads/origin.h"
#include "store/read_tickets.h"

namespace gear::store {

/// The lock of a shard, and what those who hold it wait for, without it meanwhile.
//
/// Those that wait for it are served in turn: who comes later waits behind them. A thread waits as
/// base::Blocking says, and does not hold the lock while it takes back what it gave up, Python's
/// interpreter lock: another thread may hold that and want this one.
///
/// The process is forked while nobody holds it, nor the lock of the tickets, which is taken inside
/// it: a forked child has a whole copy of what the two cover. A call that holds it for longer than
/// kForkWait, or that waits for the thread that forks, does not hold the fork up for ever: the
/// child's copy is not whole then, and nobody gets the lock there.
class ShardLock {
 public:
  using Held = std::unique_lock<std::mutex>;
  static constexpr std::chrono::seconds kForkWait{1};

  /// `tickets` outlive it. Throws OutOfMemory.
  explicit ShardLock(ReadTickets& tickets);

  /// Any thread. Throws InvalidArgument in a forked child whose copy is not whole.
  Held lock();

  /// Waits until `allowed`, which is asked at once and after each notify(); false where it says no
  /// for timeout_s (none: waits for ever). For callers that have given the interpreter lock up.
  template <class Allowed>
  bool wait(Held& held, std::optional<double> timeout_s, Allowed allowed);
  void notify() { progress_.notify_all(); }

  /// Waits, as base::Blocking says, until another thread has `done` something and called notify().
  /// Without the lock it asks the host program meanwhile (base::check_interrupt), which may throw;
  /// then the lock is not held.
  void wait_for_thread(Held& held, const std::function<bool()>& done);
  /// The same for a GPU, which tells nobody: `done` is asked under the lock every 50 us.
  void wait_for_gpu(Held& held, const std::function<bool()>& done);

 private:
  void pause();
  void resume(base::ForkPause::Side side);

  ReadTickets& tickets_;
  base::Origin origin_;
  std::mutex mutex_;
  std::mutex turn_;  // held by the first of those that wait for mutex_
  std::atomic<int> waiting_{0};
  std::condition_variable progress_;
  bool paused_ = false;   // by pause(), which holds the lock
  bool is_whole_ = true;  // false in a forked child only
  base::ForkPause fork_pause_;
};

template <class Allowed>
bool ShardLock::wait(Held& held, std::optional<double> timeout_s, Allowed allowed) {
  constexpr double kForEver = 1e9;  // seconds; more would overflow the clock
  if (!timeout_s || *timeout_s > kForEver) {
    progress_.wait(held, allowed);
    return true;
  }
  return progress_.wait_for(held, std::chrono::duration<double>(*timeout_s), allowed);
}

}  // namespace gear::store

#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/announcer.h"
#include "engine/call.h"

namespace gear::process_group {

/// Carries on the calls of this process, of all its groups, in any order. Whoever waits for a call
/// carries on all of them, so that a small operation costs no change of threads; one thread does
/// where nobody waits. It sleeps while there is nothing to do.
///
/// A thread may hold a lock of the host program, as Python's, for seconds, and other ranks need
/// this one meanwhile: whoever carries on calls never waits for such a lock.
///
///     carry on                     may wait for such a lock
///     waiters that are here        waiters that are away: ask for interrupts, announce ends
///     the thread, if none is       the announcer: announces ends, for the thread
class Engine {
 public:
  /// Deadlines go by `clock`, which must outlive it. It is not destroyed before stop().
  explicit Engine(const Clock& clock) : clock_(clock) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The one of this process, by the steady clock. It is never destroyed: threads may be in it at
  /// the end.
  static Engine& instance();

  /// Runs `make` under the engine's lock, and begins the call that it returns. Throws
  /// TransportError if the call's group has failed.
  /// `awaited`: wait() follows at once, so that the thread is not woken.
  void submit(const std::function<std::shared_ptr<Call>()>& make, bool awaited);

  /// Runs `what` under the engine's lock.
  void exclusively(const std::function<void()>& what);

  /// Returns when `call` is done. Past `timeout_s`, if given, the call fails. Ends early with what
  /// base::check_interrupt throws; the call goes on then.
  void wait(Call& call, std::optional<double> timeout_s);

  /// Carries on all calls, unless another thread does, and announces those that have ended; whether
  /// anything has moved.
  bool drive();

  /// Its threads end, and open calls stay as they are; for the end of the process.
  void stop();

 private:
  using Calls = Announcer::Calls;
  class Waiting;

  std::unique_lock<std::mutex> lock();
  static Step advance(Call& call, Time now);
  void listen(Ring& ring, Time now);
  bool carry_on(Calls& ended);
  static void finish(const Calls& ended);
  void run();
  void wake();

  const Clock& clock_;
  std::mutex mutex_;  // of all that follows, and of the wires of all calls
  Calls open_;
  std::atomic<size_t> num_open_{0};
  std::atomic<int> num_waiting_{0};  // and not away
  std::atomic<int> num_asking_{0};   // who wait for mutex_: whoever carries on calls lets them

  std::mutex sleep_mutex_;
  std::condition_variable awake_;
  bool wanted_ = false;
  bool stopped_ = false;
  std::atomic<bool> started_{false};
  std::atomic<bool> asleep_{false};
  std::optional<std::thread> thread_;
  Announcer announcer_;
};

}  // namespace gear::process_group

#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "c10d/engine/call.h"

namespace gear::c10d {

/// Carries on the calls of this process, of all its groups, in any order. Whoever waits for a call
/// carries on all of them, so that a small operation costs no change of threads; one thread does
/// where nobody waits. It sleeps while there is nothing to do.
class Engine {
 public:
  /// The one of this process. It is never destroyed: threads may be in it at the end.
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

  /// Carries on all calls, unless another thread does; whether anything has moved.
  bool drive();

  /// The thread ends, and open calls stay as they are; for the end of the process.
  void stop();

 private:
  using Calls = std::vector<std::shared_ptr<Call>>;

  static Step advance(Call& call, Clock::time_point now);
  void listen(Ring& ring, Clock::time_point now);
  static void finish(const Calls& ended);
  void run();
  void wake();

  std::mutex mutex_;  // of all that follows, and of all MPI objects of calls
  Calls open_;
  std::atomic<size_t> num_open_{0};
  std::atomic<int> num_waiting_{0};

  std::mutex sleep_mutex_;
  std::condition_variable awake_;
  bool wanted_ = false;
  bool stopped_ = false;
  std::atomic<bool> started_{false};
  std::atomic<bool> asleep_{false};
  std::optional<std::thread> thread_;
};

}  // namespace gear::c10d

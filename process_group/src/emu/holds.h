#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/threads/own_thread.h"
#include "emu/flows.h"
#include "emu/wakes.h"

namespace gear::emu {

/// Holds the results of this process's operations until the modelled ends of their flows. Whoever
/// waits for one sleeps until then by itself, so that this costs no change of threads; threads of
/// its own tell the ends of those that are followed. Any thread may call.
class Holds {
 public:
  explicit Holds(const process_group::Clock& clock) : clock_(clock) {}
  Holds(const Holds&) = delete;
  Holds& operator=(const Holds&) = delete;

  /// The one of this process, by the steady clock. It is never destroyed: threads may be in it at
  /// the end.
  static Holds& instance();

  Time now() const noexcept { return clock_.now(); }

  /// As Flows::add.
  Flows::Pointer begin(const std::shared_ptr<Flows::Line>& line, Links links, Time start,
                       double seconds);
  bool has_ended(const Flows::Pointer& flow);
  /// Returns when it has, and not before; whether it has until `deadline`. Ends early with what
  /// base::check_interrupt throws.
  bool wait(const Flows::Pointer& flow, Time deadline);
  /// One of its threads calls `then` when it has. That may wait for other flows: as many threads
  /// as do have another one beside them.
  void follow(Flows::Pointer flow, std::function<void()> then);

 private:
  using Followed = std::pair<Flows::Pointer, std::function<void()>>;

  std::vector<Followed> take_ended();
  void watch();  // by one more thread, unless one does
  void run();

  const process_group::Clock& clock_;
  Wakes wakes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Flows flows_;
  std::vector<Followed> followed_;
  std::deque<base::OwnThread> threads_;
  int idle_ = 0;  // of them, that watch
};

}  // namespace gear::emu

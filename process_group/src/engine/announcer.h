#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/call.h"

namespace gear::process_group {

/// A thread that calls Call::on_done of calls that have ended, in their order: that may wait for a
/// lock of the host program, and whoever carries on calls must not. It begins with the first.
class Announcer {
 public:
  using Calls = std::vector<std::shared_ptr<Call>>;

  /// Their memory is given up in its thread, too.
  void add(Calls ended);
  /// Announces what it has been given, and ends the thread. What is added later is not announced.
  void stop();

  /// The same in the calling thread.
  static void announce(Calls ended);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Calls ended_;
  bool stopped_ = false;
  std::optional<std::thread> thread_;
};

}  // namespace gear::process_group

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "base/threads/own_thread.h"

namespace gear::emu {

/// Runs what it is given one after the other, in a thread of its own, which begins with the first.
/// Its end waits for all of it.
class Queue {
 public:
  Queue() = default;
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// `task` throws nothing.
  void add(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_closed_ = false;
  std::optional<base::OwnThread> thread_;  // joined first
};

}  // namespace gear::emu

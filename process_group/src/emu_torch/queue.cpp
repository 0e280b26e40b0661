#include "emu_torch/queue.h"

#include <utility>

namespace gear::emu {

Queue::~Queue() {
  {
    const std::lock_guard guard(mutex_);
    is_closed_ = true;
  }
  changed_.notify_one();
}

void Queue::add(std::function<void()> task) {
  const std::lock_guard guard(mutex_);
  tasks_.push_back(std::move(task));
  if (!thread_) {
    thread_.emplace("gear_emu values", [this] { run(); });
  }
  changed_.notify_one();
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return is_closed_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it keeps may wait for Python's lock
    lock.lock();
  }
}

}  // namespace gear::emu

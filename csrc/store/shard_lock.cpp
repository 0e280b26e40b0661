#include "store/shard_lock.h"

#include <memory>
#include <thread>

#include "base/errors.h"
#include "base/threads/blocking.h"
#include "base/threads/interrupt.h"
#include "base/threads/polling.h"

namespace gear::store {

ShardLock::ShardLock(ReadTickets& tickets)
    : tickets_(tickets),
      fork_pause_([this] { pause(); }, [this](base::ForkPause::Side side) { resume(side); }) {}

ShardLock::Held ShardLock::lock() {
  if (waiting_.load(std::memory_order_relaxed) == 0) {
    Held held(mutex_, std::try_to_lock);
    if (held) {
      return held;
    }
  }
  if (!is_whole_) {
    throw base::InvalidArgument(base::cat(
        "[buffer] this buffer ", origin_.text(),
        " while another thread had been in one call of it ", "for longer than ", kForkWait.count(),
        " s (a save, say), so that the copy here is not ", "whole: fork when no such call runs"));
  }
  waiting_.fetch_add(1, std::memory_order_relaxed);
  Held turn(turn_, std::defer_lock);
  Held held(mutex_, std::defer_lock);
  for (;;) {
    {
      const base::Blocking waiting;
      if (!turn) {
        turn.lock();
      }
      mutex_.lock();
      mutex_.unlock();
    }
    if (held.try_lock()) {
      break;
    }
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return held;
}

void ShardLock::wait_for_thread(Held& held, const std::function<bool()>& done) {
  {
    const base::Blocking waiting;
    while (!done()) {
      progress_.wait_for(held, base::kInterruptEvery);
      if (!done()) {
        held.unlock();
        base::check_interrupt();
        held.lock();
      }
    }
    held.unlock();
  }
  held = lock();
}

void ShardLock::wait_for_gpu(Held& held, const std::function<bool()>& done) {
  constexpr std::chrono::microseconds kPoll{50};
  for (base::Polling polling(kPoll); !done();) {
    held.unlock();
    polling.pause();
    held = lock();
  }
}

void ShardLock::pause() {
  paused_ = false;
  if (!is_whole_) {
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + kForkWait;
  while (!(paused_ = mutex_.try_lock()) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (paused_) {
    tickets_.pause();
  }
}

void ShardLock::resume(base::ForkPause::Side side) {
  if (paused_) {
    tickets_.resume();
    mutex_.unlock();
  }
  if (side == base::ForkPause::Side::kParent) {
    return;
  }
  // Those who wait, and who holds turn_, stayed in the parent.
  tickets_.renew();
  std::construct_at(&progress_);
  std::construct_at(&turn_);
  waiting_.store(0, std::memory_order_relaxed);
  if (!paused_) {
    is_whole_ = false;
    static_cast<void>(mutex_.try_lock());  // held now, by whomever, for ever: lock() says why
  }
}

}  // namespace gear::store

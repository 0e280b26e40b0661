#include "emu/holds.h"

#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/threads/interrupt.h"

namespace gear::emu {
namespace {

// For this thread and a while, the kernel wakes sleepers at the time that they asked for.
class NoTimerSlack {
 public:
  NoTimerSlack() noexcept : before_(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0)) {
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  }
  ~NoTimerSlack() { prctl(PR_SET_TIMERSLACK, before_ > 0 ? before_ : 0, 0, 0, 0); }
  NoTimerSlack(const NoTimerSlack&) = delete;
  NoTimerSlack& operator=(const NoTimerSlack&) = delete;

 private:
  int before_;
};

void sleep_until(Time time) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  const timespec until{.tv_sec = seconds.count(),
                       .tv_nsec = std::chrono::nanoseconds(since - seconds).count()};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

}  // namespace

Holds& Holds::instance() {
  static Holds& holds = *new Holds(*new process_group::SteadyClock);
  return holds;
}

Flows::Pointer Holds::begin(const std::shared_ptr<Flows::Line>& line, Links links, Time start,
                            double seconds) {
  const std::lock_guard guard(mutex_);
  auto flow = flows_.add(line, links, start, seconds);
  if (!followed_.empty()) {
    changed_.notify_one();
  }
  return flow;
}

bool Holds::has_ended(const Flows::Pointer& flow) {
  const std::lock_guard guard(mutex_);
  flows_.advance(now());
  return flow->has_ended;
}

bool Holds::wait(const Flows::Pointer& flow, Time deadline) {
  std::optional<NoTimerSlack> exact;  // once there is something to sleep for
  Time next_interrupt = now() + base::kInterruptEvery;
  while (true) {
    Time next;
    {
      const std::lock_guard guard(mutex_);
      const Time present = now();
      flows_.advance(present);
      if (flow->has_ended) {
        return true;
      }
      if (present >= deadline) {
        return false;
      }
      next = std::min({flows_.next(), deadline, next_interrupt});
    }
    if (const Time asked = next < next_interrupt ? wakes_.before(next) : next; now() < asked) {
      if (!exact) {
        exact.emplace();
      }
      sleep_until(asked);
      wakes_.woke(asked, now());
    }
    while (now() < next) {
    }
    if (next >= next_interrupt) {
      base::check_interrupt();
      next_interrupt = now() + base::kInterruptEvery;
    }
  }
}

void Holds::watch() {
  if (idle_ == 0) {
    ++idle_;
    threads_.emplace_back("gear_emu", [this] { run(); });
  }
}

void Holds::follow(Flows::Pointer flow, std::function<void()> then) {
  const std::lock_guard guard(mutex_);
  followed_.emplace_back(std::move(flow), std::move(then));
  watch();
  changed_.notify_one();
}

std::vector<Holds::Followed> Holds::take_ended() {
  const auto ended = std::ranges::stable_partition(
      followed_, [](const Followed& one) { return !one.first->has_ended; });
  std::vector<Followed> taken(std::make_move_iterator(ended.begin()),
                              std::make_move_iterator(ended.end()));
  followed_.erase(ended.begin(), ended.end());
  return taken;
}

void Holds::run() {
  const NoTimerSlack exact;
  std::unique_lock lock(mutex_);
  while (true) {
    flows_.advance(now());
    if (auto ended = take_ended(); !ended.empty()) {
      --idle_;
      if (!followed_.empty()) {
        watch();
      }
      lock.unlock();
      for (auto& [flow, then] : ended) {
        then();
      }
      ended.clear();  // what they keep may wait for a lock of the host program
      lock.lock();
      ++idle_;
      continue;
    }
    if (followed_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Time next = flows_.next();
    if (const Time asked = wakes_.before(next); now() < asked) {
      if (changed_.wait_until(lock, asked) == std::cv_status::timeout) {
        wakes_.woke(asked, now());
      }
      continue;
    }
    lock.unlock();
    while (now() < next) {
    }
    lock.lock();
  }
}

}  // namespace gear::emu

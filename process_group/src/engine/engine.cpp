#include "engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "base/threads/signals_blocked.h"

namespace gear::process_group {
namespace {

constexpr uint32_t kBusyTurns = 2'000;    // of a waiter: a millisecond or less
constexpr uint32_t kYieldTurns = 20'000;  // some ten milliseconds
constexpr uint32_t kThreadTurns = 2'000;  // of the thread, before it sleeps between two looks
constexpr uint32_t kStandbyTurns = 20;    // of the thread beside waiters, before it must be woken
constexpr std::chrono::microseconds kShortSleep{50};
constexpr std::chrono::milliseconds kListenEvery{2};

// Whether every rank of this host has a core, as far as its launcher tells: a waiter may then keep
// its own for a while. Given away on a busy machine, it comes back milliseconds later.
bool has_core() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) {
    return false;
  }
  for (const char* const name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    if (const char* const ranks = std::getenv(name)) {
      return std::atoi(ranks) <= CPU_COUNT(&cores);
    }
  }
  return false;
}

}  // namespace

Engine& Engine::instance() {
  static const SteadyClock clock;
  static auto* const engine = new Engine(clock);
  return *engine;
}

void Engine::submit(const std::function<std::shared_ptr<Call>()>& make, bool awaited) {
  Calls ended;
  {
    const auto guard = lock();
    const std::shared_ptr<Call> call = make();
    const std::string& failure = call->ring().group.failure();
    if (!failure.empty()) {
      throw base::TransportError(failure);
    }
    const Time now = clock_.now();
    call->limit(call->timeout_s(), now);
    if (advance(*call, now) == Step::kEnded) {
      ended.push_back(call);
    } else {
      open_.push_back(call);
      num_open_ = open_.size();
    }
  }
  finish(ended);
  const bool is_open = ended.empty();
  Announcer::announce(std::move(ended));
  if (is_open && !awaited) {
    wake();
  }
}

void Engine::exclusively(const std::function<void()>& what) {
  const auto guard = lock();
  what();
}

// Whoever carries on calls that move takes the lock again sooner than a sleeper wakes.
std::unique_lock<std::mutex> Engine::lock() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    ++num_asking_;
    lock.lock();
    --num_asking_;
  }
  return lock;
}

// A call that fails has ended, too.
Step Engine::advance(Call& call, Time now) {
  Ring& ring = call.ring();
  try {
    if (!ring.group.failure().empty()) {
      throw base::TransportError(ring.group.failure());
    }
    const Step step = call.advance();
    if (step == Step::kIdle && now >= call.deadline) {
      if (const auto words = call.late(now)) {
        throw base::TransportError(*words);
      }
    }
    return step;
  } catch (const std::exception& error) {
    const bool is_told = dynamic_cast<const base::TransportError*>(&error) != nullptr;
    call.failure = is_told ? error.what()
                           : base::cat("[mpi] rank ", ring.group.shown(ring.place.rank),
                                       " failed in ", kind_name(call.kind()), ": ", error.what());
    call.cancel();
    if (call.shared() && ring.group.failure().empty()) {
      ring.roll_call.tell(call.failure);
      ring.group.fail(call.failure);
    }
    return Step::kEnded;
  }
}

void Engine::listen(Ring& ring, Time now) {
  if (now - ring.listened < kListenEvery) {
    return;
  }
  ring.listened = now;
  try {
    ring.roll_call.listen();
  } catch (const base::TransportError& error) {
    ring.group.fail(error.what());
  }
}

bool Engine::drive() {
  Calls ended;
  const bool moved = carry_on(ended);
  Announcer::announce(std::move(ended));
  return moved;
}

bool Engine::carry_on(Calls& ended) {
  bool moved = false;
  {
    if (num_asking_ > 0) {
      return false;
    }
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      return false;
    }
    const Time now = clock_.now();
    for (size_t i = 0; i < open_.size();) {
      listen(open_[i]->ring(), now);
      const Step step = advance(*open_[i], now);
      moved = moved || step != Step::kIdle;
      if (step == Step::kEnded) {
        ended.push_back(std::move(open_[i]));
        open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    num_open_ = open_.size();
  }
  finish(ended);
  return moved;
}

void Engine::finish(const Calls& ended) {
  for (const auto& call : ended) {
    if (call->on_end) {
      call->on_end();
      call->on_end = nullptr;
    }
    call->done.store(true, std::memory_order_release);
  }
}

// A thread that waits, and carries on all calls unless it is away.
class Engine::Waiting {
 public:
  explicit Waiting(Engine& of) : engine_(of) { ++engine_.num_waiting_; }
  ~Waiting() { leave(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Does what may wait for a lock of the host program.
  template <class What>
  void away(const What& what) {
    leave();
    const struct Back {
      ~Back() { ++engine.num_waiting_; }
      Engine& engine;
    } back{engine_};
    what();
  }

 private:
  void leave() {
    if (--engine_.num_waiting_ == 0 && engine_.num_open_ > 0) {
      engine_.wake();
    }
  }

  Engine& engine_;
};

void Engine::wait(Call& call, std::optional<double> timeout_s) {
  const auto is_done = [&] { return call.done.load(std::memory_order_acquire); };
  if (is_done()) {
    return;
  }
  Waiting waiting(*this);
  if (timeout_s) {
    const auto guard = lock();
    call.limit(*timeout_s, clock_.now());
  }
  static const bool keeps_core = has_core();
  auto next_look = std::chrono::steady_clock::now() + base::kInterruptEvery;
  const auto look = [&] {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_look) {
      waiting.away([] { base::check_interrupt(); });
      next_look = now + base::kInterruptEvery;
    }
  };
  for (uint32_t turn = 0; !is_done(); ++turn) {
    Calls ended;
    const bool moved = carry_on(ended);
    if (!ended.empty()) {
      waiting.away([&] { Announcer::announce(std::move(ended)); });
    }
    if (moved) {
      turn = 0;
      look();
      continue;
    }
    if (turn < kBusyTurns) {
      if (!keeps_core && turn % 16 == 15) {
        ::sched_yield();
      }
      continue;
    }
    look();
    if (turn < kYieldTurns) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kShortSleep);
    }
  }
}

void Engine::wake() {
  if (started_ && !asleep_) {
    return;  // it looks at both numbers between asleep_ and its sleep
  }
  {
    const std::lock_guard guard(sleep_mutex_);
    if (stopped_) {
      return;
    }
    wanted_ = true;
    if (!thread_) {
      const base::SignalsBlocked signals;
      thread_.emplace([this] { run(); });
      started_ = true;
    }
  }
  awake_.notify_one();
}

void Engine::run() {
  uint32_t standby = 0;
  for (uint32_t turn = 0;; ++turn) {
    if (num_open_ == 0 || standby == kStandbyTurns) {
      std::unique_lock lock(sleep_mutex_);
      asleep_ = true;
      awake_.wait(lock,
                  [&] { return wanted_ || stopped_ || (num_open_ > 0 && num_waiting_ == 0); });
      asleep_ = false;
      wanted_ = false;
      turn = 0;
      standby = 0;
    }
    {
      const std::lock_guard guard(sleep_mutex_);
      if (stopped_) {
        return;
      }
    }
    if (num_waiting_ > 0) {
      std::this_thread::sleep_for(kShortSleep);
      turn = 0;
      ++standby;
      continue;
    }
    standby = 0;
    Calls ended;
    if (carry_on(ended)) {
      turn = 0;
    } else if (turn < kThreadTurns) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kShortSleep);
    }
    if (!ended.empty()) {
      announcer_.add(std::move(ended));
    }
  }
}

void Engine::stop() {
  std::optional<std::thread> thread;
  {
    const std::lock_guard guard(sleep_mutex_);
    stopped_ = true;
    thread.swap(thread_);
  }
  awake_.notify_all();
  if (thread) {
    thread->join();
  }
  announcer_.stop();
}

}  // namespace gear::process_group

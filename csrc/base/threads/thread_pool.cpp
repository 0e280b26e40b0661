#include "base/threads/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/environment.h"
#include "base/errors.h"
#include "base/log.h"
#include "base/threads/spin.h"

namespace gear::base {
namespace {

constexpr uint64_t kOpen = 1;
constexpr uint64_t kOneInside = 2;
constexpr int64_t kMaxThreads = 1024;
constexpr size_t kDefaultMaxThreads = 16;
constexpr std::chrono::microseconds kSpin{20};

constexpr uint32_t job_of(uint64_t state) { return static_cast<uint32_t>(state >> 32); }
constexpr uint32_t inside(uint64_t state) { return static_cast<uint32_t>(state) >> 1; }

thread_local bool t_in_task = false;

size_t usable_cpus() {
  // The affinity mask, not the machine: a Slurm task owns some of a node's cores.
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    return static_cast<size_t>(std::max(CPU_COUNT(&mask), 1));
  }
  return std::max<size_t>(std::thread::hardware_concurrency(), 1);
}

}  // namespace

struct ThreadPool::Sleep {
  std::mutex mutex;
  std::condition_variable job_opened;
  std::condition_variable all_left;
};

ThreadPool::ThreadPool(size_t num_threads) : sleep_(std::make_unique<Sleep>()) {
  GEAR_CHECK(num_threads >= 1);
  workers_.reserve(num_threads - 1);
  for (size_t i = 1; i < num_threads; ++i) {
    try {
      workers_.emplace_back("gear-pool", [this] { work(); });
    } catch (const std::system_error& error) {
      refused_ = cat("[threads] the system refused thread ", i + 1, " of ", num_threads, " (",
                     error.what(), "): continuing with ", i,
                     "; raise the limit on processes or lower GEAR_NUM_THREADS");
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  if (origin_.forked()) {
    // The workers stayed in the parent, but are still counted as waiting: destroying a condition
    // variable would wait for them.
    static_cast<void>(sleep_.release());
    return;
  }
  {
    const std::lock_guard lock(sleep_->mutex);
    stop_.store(true, std::memory_order_seq_cst);
  }
  sleep_->job_opened.notify_all();
  workers_.clear();
}

size_t ThreadPool::shared_size() {
  const auto asked = env_int("GEAR_NUM_THREADS", 1, kMaxThreads);
  return asked ? static_cast<size_t>(*asked) : std::min(usable_cpus(), kDefaultMaxThreads);
}

ThreadPool& ThreadPool::shared() {
  // Without a lock: one that is held while the process is forked stays so in the child. Of threads
  // that come first at once, one gives its pool to all.
  static std::atomic<ThreadPool*> current{nullptr};
  ThreadPool* pool = current.load(std::memory_order_acquire);
  if (pool != nullptr && !pool->origin_.forked()) {
    return *pool;
  }
  auto made = std::make_unique<ThreadPool>(shared_size());
  if (current.compare_exchange_strong(pool, made.get(), std::memory_order_acq_rel)) {
    pool = made.release();
    if (!pool->refused_.empty()) {
      log(Level::kWarning, pool->refused_);  // now that a sink that asks for the pool finds it
    }
  }
  return *pool;
}

void ThreadPool::parallel_for(size_t num_tasks, const std::function<void(size_t)>& task) {
  // While another thread's loop holds the pool, tasks are run here: those left when it is free are
  // shared.
  const bool alone = num_tasks <= 1 || workers_.empty() || t_in_task || origin_.forked();
  size_t first = 0;
  while (first < num_tasks && (alone || busy_.exchange(true, std::memory_order_acquire))) {
    task(first++);
  }
  if (first == num_tasks) {
    return;
  }
  task_ = &task;
  num_tasks_ = num_tasks;
  next_task_.store(first, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  // Nobody is inside a closed job, so a plain store opens the next one.
  const uint64_t next_job = uint64_t{job_of(state_.load(std::memory_order_relaxed))} + 1;
  state_.store((next_job << 32) | kOpen, std::memory_order_seq_cst);
  wake_workers(num_tasks - first);
  run_tasks();
  close_job();
  const std::exception_ptr error = std::exchange(error_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (error) {
    std::rethrow_exception(error);
  }
}

void ThreadPool::run_tasks() {
  t_in_task = true;
  for (;;) {
    const size_t i = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (i >= num_tasks_) {
      break;
    }
    try {
      (*task_)(i);
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) {
        error_ = std::current_exception();
      }
      next_task_.store(num_tasks_, std::memory_order_relaxed);
    }
  }
  t_in_task = false;
}

void ThreadPool::wake_workers(size_t num_tasks) {
  // Pairs with wait_for_job: either this sees the sleeper, or the sleeper sees the open job. The
  // empty critical section orders this after a sleeper that has checked but not yet slept.
  if (sleepers_.load(std::memory_order_seq_cst) == 0) {
    return;
  }
  {
    const std::lock_guard lock(sleep_->mutex);
  }
  if (num_tasks - 1 >= workers_.size()) {
    sleep_->job_opened.notify_all();
    return;
  }
  for (size_t i = 1; i < num_tasks; ++i) {
    sleep_->job_opened.notify_one();
  }
}

void ThreadPool::close_job() {
  state_.fetch_and(~kOpen, std::memory_order_seq_cst);
  const auto all_left = [this] { return inside(state_.load(std::memory_order_seq_cst)) == 0; };
  if (spin_until(kSpin, all_left)) {
    return;
  }
  std::unique_lock lock(sleep_->mutex);
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  sleep_->all_left.wait(lock, all_left);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

void ThreadPool::work() {
  uint32_t seen = 0;
  while (wait_for_job(seen)) {
    if (enter(seen)) {
      run_tasks();
      leave();
    }
  }
}

bool ThreadPool::wait_for_job(uint32_t seen) {
  const auto ready = [this, seen] {
    const uint64_t state = state_.load(std::memory_order_seq_cst);
    return stop_.load(std::memory_order_relaxed) || ((state & kOpen) != 0 && job_of(state) != seen);
  };
  if (!spin_until(kSpin, ready)) {
    std::unique_lock lock(sleep_->mutex);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    sleep_->job_opened.wait(lock, ready);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
  return !stop_.load(std::memory_order_relaxed);
}

bool ThreadPool::enter(uint32_t& seen) {
  uint64_t state = state_.load(std::memory_order_relaxed);
  do {
    if ((state & kOpen) == 0 || job_of(state) == seen) {
      return false;
    }
  } while (!state_.compare_exchange_weak(state, state + kOneInside, std::memory_order_acquire,
                                         std::memory_order_relaxed));
  seen = job_of(state);
  return true;
}

void ThreadPool::leave() {
  const uint64_t before = state_.fetch_sub(kOneInside, std::memory_order_seq_cst);
  const bool last = (before & kOpen) == 0 && inside(before) == 1;
  if (last && caller_sleeps_.load(std::memory_order_seq_cst)) {
    {
      const std::lock_guard lock(sleep_->mutex);
    }
    sleep_->all_left.notify_one();
  }
}

}  // namespace gear::base

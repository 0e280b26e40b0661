#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/threads/origin.h"
#include "base/threads/own_thread.h"

namespace gear::base {

/// A fixed set of threads that run the tasks of one loop at a time, for work of a few microseconds
/// to milliseconds: idle workers spin for some 20 us before they sleep, and a loop never waits for
/// a worker that has not woken up.
///
///     caller   publish job ── run tasks ──────────── close job ── wait for those inside ── return
///     worker        └─ enter if open ── run tasks ── leave ─┘
///
/// Tasks are handed out one by one by an atomic counter: make each worth at least a microsecond.
class ThreadPool {
 public:
  /// `num_threads` counts the calling thread: 1 makes a pool without workers. Where the system
  /// refuses a thread, the pool is smaller; shared() says so in the log.
  explicit ThreadPool(size_t num_threads);

  /// Ends the workers; no loop may be running.
  ~ThreadPool();

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The pool of the process, made at the first call with shared_size() threads; a forked child
  /// gets one of its own. It is never destroyed. Throws as shared_size(). The first call may log:
  /// without a lock that the log's sink may want.
  static ThreadPool& shared();

  /// GEAR_NUM_THREADS, else one per CPU that this process may use, at most 16. Throws
  /// InvalidArgument for a GEAR_NUM_THREADS that is no such number.
  static size_t shared_size();

  /// Threads that can run tasks at once, the caller included.
  size_t size() const noexcept { return workers_.size() + 1; }

  /// Calls task(0) ... task(num_tasks - 1), each once, on any thread of the pool and on the calling
  /// one, in any order; returns when all have returned. Everything written before the call is seen
  /// by the tasks, and everything they wrote is seen after it.
  ///
  /// If a task throws, tasks not yet started are skipped and the first exception is rethrown here.
  /// May be called from any thread. It runs the tasks on the calling thread alone if called from a
  /// task, in a process forked from the pool's own, and for as long as another thread's loop holds
  /// the pool.
  void parallel_for(size_t num_tasks, const std::function<void(size_t)>& task);

 private:
  struct Sleep;

  void work();
  bool wait_for_job(uint32_t seen);
  bool enter(uint32_t& seen);
  void leave();
  void run_tasks();
  void wake_workers(size_t num_tasks);
  void close_job();

  /// One job. The plain members are written before the release that opens the job and read after
  /// the acquire that enters it; error_ is read once everybody has left.
  const std::function<void(size_t)>* task_ = nullptr;
  size_t num_tasks_ = 0;
  std::exception_ptr error_;

  /// job number << 32 | workers inside << 1 | open. One word, so that entering a job that closes at
  /// the same moment is decided by a single compare-and-swap.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<size_t> next_task_{0};
  std::atomic<bool> failed_{false};
  alignas(64) std::atomic<bool> busy_{false};
  std::atomic<bool> stop_{false};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  Origin origin_;
  std::string refused_;  ///< a sentence; empty: no thread was
  std::unique_ptr<Sleep> sleep_;
  std::vector<OwnThread> workers_;
};

}  // namespace gear::base

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/threads/thread_pool.h"
#include "child_process.h"
#include "scoped_variable.h"

using gear::base::ThreadPool;

namespace {

// Threads that came. A machine with other work to do may take long to run a second one.
class Meeting {
 public:
  size_t size() {
    const std::lock_guard lock(mutex_);
    return threads_.size();
  }

  void come() {
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }

  // Until two have come, for a minute at most.
  void wait_for_two() {
    for (int looks = 0; looks < 60000 && size() < 2; ++looks) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  std::mutex mutex_;
  std::set<std::thread::id> threads_;
};

}  // namespace

TEST_CASE("every task runs exactly once, at every size of pool and loop") {
  for (const size_t num_threads : {size_t{1}, size_t{2}, size_t{4}}) {
    ThreadPool pool(num_threads);
    CHECK(pool.size() == num_threads);
    for (const size_t num_tasks : {size_t{0}, size_t{1}, size_t{2}, size_t{3}, size_t{1000}}) {
      std::vector<int> runs(num_tasks, 0);  // plain ints: each is one task's alone
      pool.parallel_for(num_tasks, [&](size_t i) { ++runs[i]; });
      CHECK(runs == std::vector<int>(num_tasks, 1));
    }
  }
}

TEST_CASE("loops follow each other closely without mixing") {
  ThreadPool pool(4);
  std::vector<size_t> values(8, 0);
  for (size_t round = 1; round <= 5000; ++round) {
    pool.parallel_for(values.size(), [&](size_t i) { values[i] += round; });
  }
  CHECK(values == std::vector<size_t>(8, 5000 * 5001 / 2));
}

TEST_CASE("workers wake from sleep, and the caller sleeps for a long last task") {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    Meeting meeting;
    pool.parallel_for(3, [&](size_t) {
      meeting.come();
      meeting.wait_for_two();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    CHECK(meeting.size() >= 2);
  }
}

TEST_CASE("the first exception reaches the caller, and the pool goes on") {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<size_t> started{0};
    CHECK_THROWS_WITH_AS(pool.parallel_for(100000,
                                           [&](size_t i) {
                                             started.fetch_add(1);
                                             if (i % 10 == 3) {
                                               throw std::runtime_error("task failed");
                                             }
                                           }),
                         "task failed", std::runtime_error);
    CHECK(started.load() < 100000);
  }
  std::atomic<size_t> count{0};
  pool.parallel_for(10, [&](size_t) { count.fetch_add(1); });
  CHECK(count.load() == 10);
}

TEST_CASE("a loop inside a task runs on that task's thread") {
  ThreadPool pool(4);
  std::vector<std::vector<int>> runs(16, std::vector<int>(16, 0));
  pool.parallel_for(16, [&](size_t i) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.parallel_for(16, [&](size_t j) {
      ++runs[i][j];
      CHECK(std::this_thread::get_id() == outer);
    });
  });
  CHECK(runs == std::vector<std::vector<int>>(16, std::vector<int>(16, 1)));
}

TEST_CASE("several threads share one pool") {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::vector<size_t> sums(3, 0);
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 300; ++round) {
        std::vector<size_t> parts(20, 0);
        pool.parallel_for(parts.size(), [&](size_t i) { parts[i] = i; });
        for (const size_t part : parts) {
          sums[caller] += part;
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  CHECK(sums == std::vector<size_t>(3, 300 * 190));
}

TEST_CASE("a loop that begins while another holds the pool shares what is left once it is free") {
  ThreadPool pool(3);
  std::atomic<bool> held{false};
  std::atomic<bool> release{false};
  std::thread holder([&] {
    pool.parallel_for(2, [&](size_t) {
      held = true;
      while (!release) {
        std::this_thread::yield();
      }
    });
  });
  while (!held) {
    std::this_thread::yield();
  }
  Meeting meeting;
  std::vector<int> runs(100, 0);
  pool.parallel_for(runs.size(), [&](size_t i) {
    ++runs[i];
    if (i <= 3) {
      CHECK(meeting.size() <= 1);
    }
    if (i == 3) {
      release = true;
      holder.join();
    }
    meeting.come();
    if (i > 3) {
      meeting.wait_for_two();
    }
  });
  CHECK(runs == std::vector<int>(100, 1));
  CHECK(meeting.size() >= 2);
}

TEST_CASE("a forked process runs loops alone and can destroy its copy of the pool") {
  auto pool = std::make_unique<ThreadPool>(3);
  pool->parallel_for(8, [](size_t) {});
  const int code = gear::testing::in_child([&] {
    size_t sum = 0;
    pool->parallel_for(8, [&](size_t i) { sum += i; });
    pool.reset();
    return sum == 28 ? 0 : 1;
  });
  CHECK(code == 0);
  std::atomic<size_t> count{0};
  pool->parallel_for(8, [&](size_t) { count.fetch_add(1); });
  CHECK(count.load() == 8);
}

TEST_CASE("the shared pool is one and has at least the caller") {
  CHECK(&ThreadPool::shared() == &ThreadPool::shared());
  CHECK(ThreadPool::shared().size() >= 1);
}

#ifndef __SANITIZE_THREAD__  // ends a forked child that starts a thread
TEST_CASE("a forked process gets a shared pool of its own, whose threads run") {
  const gear::testing::ScopedVariable threads("GEAR_NUM_THREADS", "3");
  ThreadPool& of_parent = ThreadPool::shared();
  const int code = gear::testing::in_child([&] {
    ThreadPool& own = ThreadPool::shared();
    if (&own == &of_parent || own.size() != 3 || &own != &ThreadPool::shared()) {
      return 1;
    }
    Meeting meeting;
    own.parallel_for(100, [&](size_t) {
      meeting.come();
      meeting.wait_for_two();
    });
    return meeting.size() >= 2 ? 0 : 2;
  });
  CHECK(code == 0);
  CHECK(&ThreadPool::shared() == &of_parent);
}
#endif

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "base/threads/own_thread.h"
#include "child_process.h"

using gear::base::OwnThread;

TEST_CASE("an own thread has a name and takes no signal, and its maker still does") {
  std::string name;
  sigset_t blocked;
  std::atomic<bool> named{false};
  {
    const OwnThread thread("gear-test", [&] {
      named.wait(false);
      std::array<char, 16> text{};
      pthread_getname_np(pthread_self(), text.data(), text.size());
      name = text.data();
      pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    });
    named = true;  // by its constructor
    named.notify_all();
  }
  CHECK(name == "gear-test");
  for (const int one : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGALRM}) {
    CHECK(sigismember(&blocked, one) == 1);
  }
  sigset_t own;
  pthread_sigmask(SIG_BLOCK, nullptr, &own);
  CHECK(sigismember(&own, SIGUSR1) == 0);
}

TEST_CASE("an own thread is joined once: by its end, by join, or by who takes its place") {
  std::atomic<int> runs{0};
  OwnThread none;
  none.join();
  OwnThread first("gear-test", [&] { ++runs; });
  OwnThread second = std::move(first);
  first.join();
  second = OwnThread("gear-test", [&] { ++runs; });
  CHECK(runs >= 1);
  second.join();
  second.join();
  CHECK(runs == 2);
}

TEST_CASE("a forked child does not wait for a thread that stayed in its parent") {
  std::atomic<bool> stop{false};
  auto thread = std::make_unique<OwnThread>("gear-test", [&] { stop.wait(false); });
  CHECK(gear::testing::in_child([&] {
          ::alarm(20);  // the fault would be to wait for ever
          thread.reset();
          return 0;
        }) == 0);
  stop = true;
  stop.notify_all();
}

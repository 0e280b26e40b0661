#pragma once

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/errors.h"

namespace gear::testing {

/// A rank in a process of its own, forked before anything of RDMA is open; it ends without
/// destructors.
class RankProcess {
 public:
  explicit RankProcess(const std::function<void()>& body) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      std::string said = "done";
      try {
        body();
      } catch (const std::exception& error) {
        said = error.what();
      }
      ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0
                                                                                              : 1);
    }
    ::close(ends[1]);
    from_ = ends[0];
  }
  ~RankProcess() {
    if (pid_ > 0) {
      signal(SIGKILL);
      static_cast<void>(words());
    }
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  void signal(int number) const { ::kill(pid_, number); }

  /// "R", "S", "T": of /proc/<pid>/stat.
  std::string state() const {
    std::ifstream file(base::cat("/proc/", pid_, "/stat"));
    std::string number, name, state;
    file >> number >> name >> state;
    return state;
  }

  void wait_stopped() const {
    for (int i = 0; i < 2000 && state() != "T"; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    REQUIRE(state() == "T");
  }

  /// "done", or what was thrown, or "" where it was killed; waits for its end.
  std::string words() {
    std::string text;
    char buffer[512];
    for (ssize_t n = 0; (n = ::read(from_, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    ::close(from_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return text;
  }

 private:
  pid_t pid_ = -1;
  int from_ = -1;
};

}  // namespace gear::testing

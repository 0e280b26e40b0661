#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace gear::testing {

/// Whether every thread of this process but the calling one sleeps.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) {
      continue;
    }
    std::ifstream file(task.path() / "stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    const size_t name_end = stat.rfind(") ");
    if (name_end != std::string::npos && stat[name_end + 2] != 'S') {
      return false;
    }
  }
  return true;
}

/// Before a fork. A thread that allocates, as each does while it starts, has locked the address
/// sanitizer's allocator: for ever, in a child that is forked meanwhile.
inline void wait_for_others() {
  for (int looks = 0; looks < 1000 && !others_sleep(); ++looks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Runs `body` in a forked child that ends without destructors, as a crash would; returns what it
/// returned (0 to 254), or 255 if it threw.
template <class Body>
int in_child(const Body& body) {
  wait_for_others();
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    int code = 255;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace gear::testing

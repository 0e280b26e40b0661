#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <string>
#include <type_traits>
#include <vector>

#include "base/errors.h"
#include "child_process.h"

/// Ranks that are processes of this one.
namespace gear::testing {

struct Child {
  pid_t pid;
  int from;  // what it says

  // Its words, "" if it was killed; waits for its end.
  std::string words() const {
    std::string text;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(from, buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    ::close(from);
    REQUIRE(::waitpid(pid, nullptr, 0) == pid);
    return text;
  }
};

// Runs body(rank) in a process that ends without destructors. It says what that returned, "done"
// for nothing, or what it threw. The body starts no thread.
template <class Body>
Child start_rank(uint32_t rank, const Body& body) {
  wait_for_others();
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    std::string text;
    try {
      if constexpr (std::is_void_v<decltype(body(rank))>) {
        body(rank);
        text = "done";
      } else {
        text = body(rank);
      }
    } catch (const std::exception& error) {
      text = error.what();
    }
    for (size_t said = 0; said < text.size();) {
      const ssize_t written = ::write(ends[1], text.data() + said, text.size() - said);
      if (written < 0) {
        ::_exit(3);
      }
      said += static_cast<size_t>(written);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  return {pid, ends[0]};
}

template <class Body>
std::vector<Child> start_ranks(uint32_t size, const Body& body) {
  std::vector<Child> children;
  for (uint32_t r = 0; r < size; ++r) {
    children.push_back(start_rank(r, body));
  }
  return children;
}

// Of what ranks of this process's tests share.
inline std::string shared_name_of(const char* subject) {
  return base::cat("test-", subject, "-", ::getpid());
}

}  // namespace gear::testing

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "memory/shared/process_identity.h"

using namespace gear::memory;

TEST_CASE("this process is alive, and alive once only") {
  const ProcessIdentity self = this_process();
  CHECK(self.pid == ::getpid());
  CHECK(self.start_time > 0);
  CHECK(self == this_process());
  CHECK(liveness(self) == Liveness::kAlive);

  ProcessIdentity reused = self;
  reused.start_time -= 1;
  CHECK(liveness(reused) == Liveness::kEnded);

  ProcessIdentity elsewhere = self;
  elsewhere.pid_namespace += 1;
  CHECK(liveness(elsewhere) == Liveness::kUnknown);
}

TEST_CASE("a process has ended from its exit on, reaped or not") {
  std::array<int, 2> pipe_ends;
  REQUIRE(::pipe(pipe_ends.data()) == 0);
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    const ProcessIdentity self = this_process();
    static_cast<void>(!::write(pipe_ends[1], &self, sizeof self));
    ::pause();
    ::_exit(0);
  }
  ProcessIdentity child{};
  REQUIRE(::read(pipe_ends[0], &child, sizeof child) == ssize_t{sizeof child});
  CHECK(child.pid == pid);
  CHECK(liveness(child) == Liveness::kAlive);
  REQUIRE(::kill(pid, SIGKILL) == 0);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(liveness(child) == Liveness::kEnded);  // a zombie
  REQUIRE(::waitpid(pid, nullptr, 0) == pid);
  CHECK(liveness(child) == Liveness::kEnded);
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}

// Processes that end, are stopped or leave children, as another one sees them.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "forked_ranks.h"
#include "transport/fabric/life_lines.h"

using namespace gear::testing;
using gear::transport::fabric::LifeLines;

namespace {

std::vector<std::byte> here() {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  const auto bytes = std::as_bytes(std::span(&name, 1));
  return {bytes.begin(), bytes.end()};
}

struct Told {
  std::atomic<uint32_t> port;
  std::atomic<pid_t> child;
};

// What a process tells this one.
class Shared {
 public:
  Shared()
      : told_(new (::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0)) Told()) {}
  ~Shared() { ::munmap(told_, sizeof(Told)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Told* operator->() const { return told_; }

 private:
  Told* told_;
};

// A process that lives until a signal ends it, with a child of its own if `forks`.
Child start_watched(const Shared& told, bool forks) {
  const Child child = start_rank(1, [&](uint32_t) {
    const LifeLines lines(here());
    if (forks) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::sleep(100);
        ::_exit(0);
      }
      told->child = pid;
    }
    told->port = lines.port();
    for (;;) {
      ::pause();
    }
  });
  for (int look = 0; look < 60'000 && told->port == 0; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(told->port != 0);
  return child;
}

uint16_t port_of(const Shared& told) { return static_cast<uint16_t>(told->port.load()); }

bool ends_soon(LifeLines& lines, uint32_t rank) {
  for (int look = 0; look < 1000 && !lines.has_ended(rank); ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return lines.has_ended(rank);
}

bool lives_on(LifeLines& lines, uint32_t rank) {
  for (int look = 0; look < 20; ++look) {
    if (lines.has_ended(rank)) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

TEST_CASE("life lines: a process that is stopped lives, one that is killed does not") {
  const Shared told;
  const Child watched = start_watched(told, false);
  LifeLines lines(here());
  CHECK_FALSE(lines.has_ended(1));  // nobody watches it
  lines.watch(1, here(), port_of(told));
  CHECK(lives_on(lines, 1));
  ::kill(watched.pid, SIGSTOP);
  CHECK(lives_on(lines, 1));
  CHECK_FALSE(lines.has_ended(2));
  ::kill(watched.pid, SIGKILL);
  CHECK(ends_soon(lines, 1));
  lines.watch(1, here(), port_of(told));
  CHECK(lines.has_ended(1));
  CHECK(watched.words() == "");
}

TEST_CASE("life lines: a child does not keep its parent alive") {
  const Shared told;
  const Child watched = start_watched(told, true);
  LifeLines lines(here());
  lines.watch(1, here(), port_of(told));
  CHECK(lives_on(lines, 1));
  ::kill(watched.pid, SIGKILL);
  CHECK(ends_soon(lines, 1));
  ::kill(told->child, SIGKILL);
  CHECK(watched.words() == "");
}

TEST_CASE("life lines: one that is closed has ended, with its process or without") {
  std::optional<LifeLines> other(here());
  LifeLines lines(here());
  lines.watch(1, here(), other->port());
  CHECK(lives_on(lines, 1));
  other.reset();
  CHECK(ends_soon(lines, 1));
}

TEST_CASE("life lines: nothing is said where no line was made") {
  std::optional<LifeLines> closed(here());
  const uint16_t nobody = closed->port();
  closed.reset();
  LifeLines lines(here());
  lines.watch(1, here(), nobody);
  CHECK(lives_on(lines, 1));
}

TEST_CASE("life lines: a line that something between breaks is made again") {
  // In the place of a LifeLines: one that accepts, and breaks what it has.
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  auto name = here();
  auto* const address = reinterpret_cast<sockaddr*>(name.data());
  socklen_t size = sizeof(sockaddr_in);
  REQUIRE(::bind(listening, address, size) == 0);
  REQUIRE(::listen(listening, 8) == 0);
  REQUIRE(::getsockname(listening, address, &size) == 0);
  const uint16_t port = ::ntohs(reinterpret_cast<sockaddr_in*>(name.data())->sin_port);
  LifeLines lines(here());
  lines.watch(1, here(), port);
  for (int time = 0; time < 3; ++time) {
    const int accepted = ::accept(listening, nullptr, nullptr);
    CHECK(lives_on(lines, 1));
    const linger at_once{.l_onoff = 1, .l_linger = time % 2 == 0 ? 0 : 1};
    ::setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(accepted);
    CHECK(lives_on(lines, 1));
  }
  ::close(listening);  // with the line that waits there
  CHECK(ends_soon(lines, 1));
}

TEST_CASE("life lines: a process may fork while a thread makes lines") {
  const LifeLines other(here());
  LifeLines lines(here());
  std::atomic<bool> over = false;
  std::thread thread([&] {
    for (uint32_t rank = 0; !over; rank = (rank + 1) % 16) {
      lines.watch(rank, here(), other.port());
      static_cast<void>(lines.has_ended(rank));
    }
  });
  for (int time = 0; time < 50; ++time) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      const bool untouched = lines.has_ended(0);
      ::_exit(untouched ? 1 : 0);
    }
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
  over = true;
  thread.join();
}

TEST_CASE("life lines: a rank holds a few, those that it asked for first") {
  std::optional<LifeLines> other(here());
  LifeLines lines(here());
  for (uint32_t rank = 0; rank < 40; ++rank) {
    lines.watch(rank, here(), other->port());
  }
  other.reset();
  CHECK(ends_soon(lines, 0));
  CHECK(ends_soon(lines, 15));
  CHECK(lives_on(lines, 16));
}

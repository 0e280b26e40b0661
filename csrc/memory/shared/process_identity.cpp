#include "memory/shared/process_identity.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/errors.h"

namespace gear::memory {
namespace {

struct Stat {
  char state;
  uint64_t start_time;
};

// Nothing where it cannot be read: of a process that ends meanwhile, too. Throws nothing.
std::optional<Stat> read_stat(int64_t pid) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%lld/stat", static_cast<long long>(pid));
  const int file = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return std::nullopt;
  }
  std::array<char, 1024> text{};  // the last byte stays 0
  size_t size = 0;
  for (ssize_t more = 1; more > 0 && size + 1 < text.size(); size += static_cast<size_t>(more)) {
    more = std::max<ssize_t>(::read(file, text.data() + size, text.size() - 1 - size), 0);
  }
  ::close(file);
  // Field 2 is the command in parentheses and may hold spaces, newlines and parentheses itself.
  const char* field = std::strrchr(text.data(), ')');
  if (field == nullptr || field[1] != ' ') {
    return std::nullopt;
  }
  Stat stat{field[2], 0};
  for (int number = 2; number < 22; ++number) {
    field = std::strchr(field + 1, ' ');
    if (field == nullptr) {
      return std::nullopt;
    }
  }
  stat.start_time = std::strtoull(field, nullptr, 10);
  return stat;
}

uint64_t own_pid_namespace() noexcept {
  struct stat status;
  // Kernels without pid namespaces have one for all.
  return ::stat("/proc/self/ns/pid", &status) == 0 ? uint64_t{status.st_ino} : 0;
}

}  // namespace

ProcessIdentity this_process() {
  const int64_t pid = ::getpid();
  const std::optional<Stat> stat = read_stat(pid);
  if (!stat) {
    throw base::IoError(base::cat("[memory] /proc/", pid, "/stat is not readable: mount /proc"),
                        ENOENT);
  }
  return {pid, stat->start_time, own_pid_namespace()};
}

Liveness liveness(const ProcessIdentity& process) noexcept {
  if (process.pid_namespace != own_pid_namespace()) {
    return Liveness::kUnknown;
  }
  if (const std::optional<Stat> stat = read_stat(process.pid)) {
    const bool exited = stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
    return !exited && stat->start_time == process.start_time ? Liveness::kAlive : Liveness::kEnded;
  }
  const bool in_use = ::kill(static_cast<pid_t>(process.pid), 0) == 0 || errno == EPERM;
  return in_use ? Liveness::kAlive : Liveness::kEnded;
}

}  // namespace gear::memory

#include "memory/shared/process_identity.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

#include "base/errors.h"

namespace gear::memory {
namespace {

struct Stat {
  char state;
  uint64_t start_time;
};

std::optional<Stat> read_stat(int64_t pid) {
  std::ifstream file(base::cat("/proc/", pid, "/stat"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  // Field 2 is the command in parentheses and may hold spaces, newlines and parentheses itself.
  const size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(command_end + 1));
  Stat stat{};
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) {
    fields >> skipped;
  }
  if (!(fields >> stat.start_time)) {
    return std::nullopt;
  }
  return stat;
}

uint64_t own_pid_namespace() {
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

Liveness liveness(const ProcessIdentity& process) {
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

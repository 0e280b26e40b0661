#pragma once

#include <cstdint>
#include <type_traits>

namespace gear::memory {

/// A process, told apart from a later one that got the same pid. Plain bytes: stored in shared
/// memory.
struct ProcessIdentity {
  int64_t pid;
  uint64_t start_time;     ///< clock ticks from boot, field 22 of /proc/<pid>/stat
  uint64_t pid_namespace;  ///< inode of /proc/self/ns/pid; pids of two namespaces do not compare

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};
static_assert(std::is_trivially_copyable_v<ProcessIdentity> && sizeof(ProcessIdentity) == 24);

enum class Liveness : uint8_t {
  kAlive,
  kEnded,    ///< exited, or its pid belongs to another process by now; a zombie has ended
  kUnknown,  ///< of another pid namespace (a container): this process cannot see it
};

/// The calling process. Throws IoError if /proc is not readable.
ProcessIdentity this_process();

/// Whether the process still runs. Where /proc hides it (hidepid), whether its pid is in use.
Liveness liveness(const ProcessIdentity& process) noexcept;

}  // namespace gear::memory

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// What a process may have of the node's memory.

namespace gear::memory {

/// What this process may have of the node's memory, in bytes.
struct HostMemory {
  /// The RAM of the node or the limit of a control group around this process (a Slurm job, a
  /// container), whichever is smaller: to use more is to be killed.
  uint64_t total;

  /// What could be used without swapping, at most `total`.
  uint64_t available;
};

/// Reads <proc>/meminfo, <proc>/self/cgroup and the memory limits of control groups (both versions)
/// below <cgroups>. What cannot be read does not limit: UINT64_MAX. The roots are there for tests.
HostMemory host_memory(const std::string& proc = "/proc",
                       const std::string& cgroups = "/sys/fs/cgroup");

/// Throws OutOfMemory if `bytes` exceed host_memory().total.
void refuse_more_than_total(std::string_view tier, uint64_t bytes);

/// "12.0 GiB (12884901888 bytes)", for messages.
std::string bytes_text(uint64_t bytes);

/// How much memory this process may page-lock, in bytes.
struct Lockable {
  uint64_t limit;   ///< RLIMIT_MEMLOCK (ulimit -l); UINT64_MAX: none, or CAP_IPC_LOCK is held
  uint64_t locked;  ///< what the system counts against it already
};

/// Reads <proc>/self/status for the capability and the count; the root is there for tests.
Lockable lockable(const std::string& proc = "/proc");

/// Throws OutOfMemory, naming the limit, what is locked, the bytes asked for and `ulimit -l`, if
/// `bytes` more do not fit.
void refuse_more_than_lockable(uint64_t bytes, const Lockable& memory = lockable());

}  // namespace gear::memory

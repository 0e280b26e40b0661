#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace gear::memory

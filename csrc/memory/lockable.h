#pragma once

#include <cstdint>
#include <string>

namespace gear::memory {

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

#include "memory/lockable.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/errors.h"
#include "memory/host_memory.h"

namespace gear::memory {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kCapIpcLock = uint64_t{1} << 14;  // linux/capability.h

}  // namespace

Lockable lockable(const std::string& proc) {
  Lockable memory{kUnlimited, 0};
  struct rlimit limit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    memory.limit = limit.rlim_cur;
  }
  std::ifstream status(proc + "/self/status");
  for (std::string line; std::getline(status, line);) {
    std::istringstream fields(line);
    std::string label;
    fields >> label;
    if (label == "CapEff:") {
      uint64_t capabilities = 0;
      if (fields >> std::hex >> capabilities && (capabilities & kCapIpcLock) != 0) {
        memory.limit = kUnlimited;
      }
    } else if (label == "VmLck:" || label == "VmPin:") {
      uint64_t kibibytes = 0;
      if (fields >> kibibytes) {
        memory.locked += kibibytes * 1024;
      }
    }
  }
  return memory;
}

void refuse_more_than_lockable(uint64_t bytes, const Lockable& memory) {
  if (memory.limit == kUnlimited || bytes <= memory.limit - std::min(memory.limit, memory.locked)) {
    return;
  }
  throw base::OutOfMemory(base::cat(
      "[memory] a region of ", bytes_text(bytes),
      " on tier 'pinned' was asked for, but this process may lock ", bytes_text(memory.limit),
      " of memory (ulimit -l), of which ", bytes_text(memory.locked),
      " are locked: raise the limit (ulimit -l unlimited; in Slurm, "
      "PropagateResourceLimitsExcept=MEMLOCK; in a container, --ulimit "
      "memlock=-1), or use tier='host'"));
}

}  // namespace gear::memory

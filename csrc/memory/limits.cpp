#include "memory/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>

#include "base/errors.h"

namespace gear::memory {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kCapIpcLock = uint64_t{1} << 14;  // linux/capability.h

// A limit file holds a number or "max"; version 1 writes a number near 2^63 for none.
uint64_t read_limit(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value = 0;
  if (!(file >> text) ||
      std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
    return kUnlimited;
  }
  return value;
}

// The smallest limit of the group and of all that contain it.
uint64_t smallest_limit(const std::string& root, std::string group, const std::string& file) {
  uint64_t limit = read_limit(root + "/" + file);
  while (group.size() > 1) {
    limit = std::min(limit, read_limit(root + group + "/" + file));
    group.resize(group.rfind('/'));
  }
  return limit;
}

bool lists_memory(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "memory") {
      return true;
    }
  }
  return false;
}

// Lines of /proc/self/cgroup: "0::/group" (version 2), "5:memory:/group" (version 1).
uint64_t cgroup_limit(const std::string& proc, const std::string& cgroups) {
  uint64_t limit = kUnlimited;
  std::ifstream groups(proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos || line[second + 1] != '/') {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      limit = std::min(limit, smallest_limit(cgroups, group, "memory.max"));
    } else if (lists_memory(controllers)) {
      limit = std::min(limit, smallest_limit(cgroups + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return limit;
}

}  // namespace

HostMemory host_memory(const std::string& proc, const std::string& cgroups) {
  HostMemory memory{kUnlimited, kUnlimited};
  std::ifstream info(proc + "/meminfo");
  for (std::string line; std::getline(info, line);) {
    std::istringstream fields(line);
    std::string label;
    uint64_t kibibytes = 0;
    if (fields >> label >> kibibytes) {
      if (label == "MemTotal:") {
        memory.total = kibibytes * 1024;
      } else if (label == "MemAvailable:") {
        memory.available = kibibytes * 1024;
      }
    }
  }
  memory.total = std::min(memory.total, cgroup_limit(proc, cgroups));
  memory.available = std::min(memory.available, memory.total);
  return memory;
}

void refuse_more_than_total(std::string_view tier, uint64_t bytes) {
  const HostMemory memory = host_memory();
  if (bytes > memory.total) {
    throw base::OutOfMemory(base::cat(
        "[memory] no room for ", bytes_text(bytes), " on tier '", tier, "': this process may use ",
        bytes_text(memory.total), " in all, and ", bytes_text(memory.available),
        " are available; lower the capacity, ask the scheduler for more memory, "
        "or spread the buffer over more nodes"));
  }
}

std::string bytes_text(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) {
    return base::cat(bytes, " bytes");
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) {
    value /= 1024;
  }
  return base::cat(std::fixed, std::setprecision(1), value, " ", kUnits[unit], " (", bytes,
                   " bytes)");
}

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
  throw base::OutOfMemory(
      base::cat("[memory] no room for ", bytes_text(bytes),
                " on tier 'pinned': this process may lock ", bytes_text(memory.limit),
                " of memory (ulimit -l), and has locked ", bytes_text(memory.locked),
                "; raise the limit (ulimit -l unlimited; in Slurm, "
                "PropagateResourceLimitsExcept=MEMLOCK; in a container, --ulimit "
                "memlock=-1), or use tier='host'"));
}

}  // namespace gear::memory

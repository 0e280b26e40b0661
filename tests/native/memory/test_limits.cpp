#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "expect_message.h"
#include "memory/limits.h"

using namespace gear::memory;
namespace fs = std::filesystem;

namespace {

// A made-up /proc and /sys/fs/cgroup.
class Roots {
 public:
  Roots() {
    std::string pattern = (fs::temp_directory_path() / "gear-roots-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    put("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    800 kB\n");
  }
  ~Roots() { fs::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(path_ + "/" + file).parent_path());
    std::ofstream(path_ + "/" + file) << text;
  }
  HostMemory read() const { return host_memory(path_ + "/proc", path_ + "/cgroup"); }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("without control groups the node's memory counts") {
  const Roots roots;
  CHECK(roots.read().total == 1000 * 1024);
  CHECK(roots.read().available == 800 * 1024);
}

TEST_CASE("the smallest limit of the groups around the process counts, version 2") {
  const Roots roots;
  roots.put("proc/self/cgroup", "0::/slurm/job/step\n");
  roots.put("cgroup/slurm/memory.max", "900000\n");
  roots.put("cgroup/slurm/job/memory.max", "500000\n");
  roots.put("cgroup/slurm/job/step/memory.max", "max\n");
  CHECK(roots.read().total == 500000);
  CHECK(roots.read().available == 500000);
}

TEST_CASE("the smallest limit of the groups around the process counts, version 1") {
  const Roots roots;
  roots.put("proc/self/cgroup", "7:cpu,cpuacct:/x\n5:memory:/slurm/job\nnonsense\n1:name\n");
  roots.put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  roots.put("cgroup/memory/slurm/job/memory.limit_in_bytes", "400000\n");
  CHECK(roots.read().total == 400000);
}

TEST_CASE("this machine has memory, and more than that is refused up front") {
  const HostMemory memory = host_memory();
  CHECK(memory.total > 0);
  CHECK(memory.available <= memory.total);
  CHECK_NOTHROW(refuse_more_than_total("host", memory.total));
  gear::testing::expect_message<gear::base::OutOfMemory>(
      [] { refuse_more_than_total("host", uint64_t{1} << 60); }, "[memory]",
      "1024.0 PiB (1152921504606846976 bytes)", "tier 'host'", "in all", "available",
      "lower the capacity");
}

TEST_CASE("bytes are written for people and for scripts") {
  CHECK(bytes_text(0) == "0 bytes");
  CHECK(bytes_text(1023) == "1023 bytes");
  CHECK(bytes_text(1536) == "1.5 KiB (1536 bytes)");
  CHECK(bytes_text(uint64_t{12} << 30) == "12.0 GiB (12884901888 bytes)");
}

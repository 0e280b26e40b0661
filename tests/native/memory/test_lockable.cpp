#include <doctest/doctest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "child_process.h"
#include "expect_message.h"
#include "memory/limits.h"
#include "temporary_folder.h"

using namespace gear::memory;
namespace {

// A made-up /proc of a process with these capabilities.
std::string proc_with(const gear::testing::TemporaryFolder& folder, const std::string& status) {
  std::filesystem::create_directories(folder / "self");
  std::ofstream(folder / "self/status") << status;
  return folder.path();
}

}  // namespace

TEST_CASE("the limit on locked memory counts, less what is locked") {
  const gear::testing::TemporaryFolder folder;
  const std::string proc = proc_with(
      folder, "Name:\tx\nVmLck:\t      12 kB\nVmPin:\t       4 kB\nCapEff:\t0000000000000001\n");
  const int code = gear::testing::in_child([&] {
    const struct rlimit limit = {1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
      return 1;
    }
    const Lockable memory = lockable(proc);
    if (memory.limit != 1 << 20 || memory.locked != 16 << 10) {
      return 2;
    }
    return 0;
  });
  CHECK(code == 0);
}

TEST_CASE("a process with CAP_IPC_LOCK has no limit") {
  const gear::testing::TemporaryFolder folder;
  const std::string proc = proc_with(folder, "CapEff:\t0000000000004000\n");
  const int code = gear::testing::in_child([&] {
    const struct rlimit limit = {1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
      return 1;
    }
    return lockable(proc).limit == UINT64_MAX ? 0 : 2;
  });
  CHECK(code == 0);
}

TEST_CASE("more than may be locked is refused in words") {
  const Lockable memory{1 << 20, 16 << 10};
  CHECK_NOTHROW(refuse_more_than_lockable((1 << 20) - (16 << 10), memory));
  gear::testing::expect_message<gear::base::OutOfMemory>(
      [&] { refuse_more_than_lockable((1 << 20) - (16 << 10) + 1, memory); }, "[memory]",
      "(1032193 bytes)", "tier 'pinned'", "1.0 MiB (1048576 bytes)", "16.0 KiB (16384 bytes)",
      "ulimit -l", "tier='host'");
  CHECK_NOTHROW(refuse_more_than_lockable(UINT64_MAX, {UINT64_MAX, 0}));
  // Locked beforehand, by a limit that was higher: nothing more.
  CHECK_THROWS_AS(refuse_more_than_lockable(1, {10, 20}), gear::base::OutOfMemory);
}

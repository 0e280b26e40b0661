// Memory of a GPU as peers see it: other GPUs of this process, and other processes. Those are this
// program again, told by the environment what to map.
#include <doctest/doctest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/devices.h"
#include "memory/peer_region.h"

using namespace gear::memory;

namespace {

constexpr uint64_t kBytes = (uint64_t{4} << 20) + 4096;
constexpr const char* kAddressFile = "GEAR_TEST_ADDRESS_FILE";
constexpr const char* kReader = "GEAR_TEST_READER";
constexpr const char* kChildTest = "child: maps what a peer owns";

std::vector<std::byte> pattern(uint32_t seed) {
  std::vector<std::byte> bytes(kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) {
    bytes[i] = static_cast<std::byte>((i * 2654435761U + seed) >> 13);
  }
  return bytes;
}

std::unique_ptr<Region> filled_region(int device, uint32_t seed) {
  auto region = make_region(Tier::kDevice, kBytes, {"", "", device});
  region->write(0, pattern(seed));
  return region;
}

// By a copy that a kernel could make too: from the mapped address, into the reader's own memory.
std::vector<std::byte> read_by_pointer(const Region& region, int reader) {
  const gear::base::OnDevice on(reader);
  const gear::base::DeviceArray<std::byte> copy(region.bytes(), reader);
  GEAR_CUDA_TRY(cudaMemcpy(copy.get(), region.device_data(), region.bytes(), cudaMemcpyDefault));
  std::vector<std::byte> bytes(region.bytes());
  GEAR_CUDA_TRY(cudaMemcpy(bytes.data(), copy.get(), bytes.size(), cudaMemcpyDefault));
  return bytes;
}

// Exit code of this program when it maps `address` on GPU `reader`.
int run_child(const RegionAddress& address, int reader) {
  const std::string file = gear::base::cat("/tmp/gear-peer-", ::getpid());
  std::ofstream(file).write(reinterpret_cast<const char*>(&address), sizeof address);
  ::setenv(kAddressFile, file.c_str(), 1);
  ::setenv(kReader, std::to_string(reader).c_str(), 1);
  std::string filter = std::string("--test-case=") + kChildTest;
  std::string all = "--no-skip=true";
  std::string self = "/proc/self/exe";
  char* arguments[] = {self.data(), filter.data(), all.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, environ) == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::unlink(file.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("child: maps what a peer owns" * doctest::skip()) {
  RegionAddress address;
  std::ifstream(std::getenv(kAddressFile)).read(reinterpret_cast<char*>(&address), sizeof address);
  const int reader = std::atoi(std::getenv(kReader));
  REQUIRE(address.owner != this_process());
  {
    const auto region = open_peer_region(address, reader);
    CHECK(region->tier() == address.tier);
    CHECK(read_by_pointer(*region, reader) == pattern(1));
    // A second mapping of the same memory, closed before the first.
    CHECK(read_by_pointer(*open_peer_region(address, reader), reader) == pattern(1));
  }
  address.gpu[3] ^= std::byte{1};
  if (address.tier == Tier::kDevice) {
    CHECK_THROWS_WITH_AS(open_peer_region(address, reader), doctest::Contains("does not see"),
                         gear::base::InvalidArgument);
  }
}

TEST_CASE("another process reads a GPU's memory by pointer") {
  for (int owner = 0; owner < gear::base::device_count(); ++owner) {
    for (int reader = 0; reader < gear::base::device_count(); ++reader) {
      CAPTURE(owner);
      CAPTURE(reader);
      const auto region = filled_region(owner, 1);
      const RegionAddress address = address_of(*region, "");
      REQUIRE(mappable(address));
      CHECK(address.shareable);
      CHECK(run_child(address, reader) == 0);
    }
  }
}

TEST_CASE("another process reads pinned memory by pointer") {
  const std::string name = gear::base::cat("peer-pinned-", ::getpid());
  const auto region = make_region(Tier::kPinned, kBytes, {name, "0123456789abcdef", -1});
  region->write(0, pattern(1));
  RegionAddress address = address_of(*region, "0123456789abcdef");
  REQUIRE(mappable(address));
  CHECK(run_child(address, gear::base::device_count() - 1) == 0);
}

TEST_CASE("another GPU of this process reads by the owner's own pointer") {
  const int last = gear::base::device_count() - 1;
  auto region = filled_region(0, 9);
  const auto peer = open_peer_region(address_of(*region, ""), last);
  CHECK(peer->device() == 0);
  CHECK(peer->device_data() == region->device_data());
  CHECK(read_by_pointer(*peer, last) == pattern(9));
  region.reset();  // before the one that reads it
}

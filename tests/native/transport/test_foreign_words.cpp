// What another process says is checked before it is believed, and a library's group is ended.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "expect_message.h"
#include "memory/region.h"
#include "ranks.h"
#include "transport/loopback.h"
#include "transport/nccl/grouped.h"
#include "transport/one_sided/chunked_memory.h"
#include "transport/shared/shared_memory.h"
#include "transport/shared/shared_rounds.h"
#include "transport/typed.h"

using namespace gear::transport;
using namespace gear::testing;

namespace {

// What rank 0 hears in an alltoallv of 8 bytes from rank 1, which says that they lie there.
std::string heard(uint64_t offset, uint64_t bytes) {
  const std::shared_ptr<gear::memory::Region> region = gear::memory::make_region(
      gear::memory::Tier::kHost, shared_memory_bytes(2), {"", "0000000000000000", -1});
  std::string error;
  std::thread victim([&] {
    try {
      const auto transport = make_shared_memory(region, 0, 2, 200);
      std::vector<std::byte> eight(8);
      const std::vector<ConstBytes> to(2);
      const std::vector<Bytes> from{Bytes(), Bytes(eight)};
      transport->alltoallv(to, from);
    } catch (const gear::base::TransportError& thrown) {
      error = thrown.what();
    }
  });
  SharedRounds stranger(region, 1, 2, 200, std::make_shared<Failure>());
  Outbox& own = stranger.begin(Call::kAlltoallv);
  own.more = 0;
  stranger.layout().entries(own)[0] = {8, 0, offset, bytes};
  stranger.layout().entries(own)[1] = {0, 0, 0, 0};
  stranger.publish();
  victim.join();
  return error;
}

int g_depth = 0;  // of groups of the library that stands in for NCCL

nccl::Library stand_in() {
  nccl::Library library{};
  library.group_start = [] {
    ++g_depth;
    return nccl::kSuccess;
  };
  library.group_end = [] {
    --g_depth;
    return nccl::kSuccess;
  };
  return library;
}

}  // namespace

TEST_CASE("an entry of shared_memory that points beyond its outbox is refused") {
  CHECK(heard(0, 8) == "");
  for (const auto& [offset, bytes] :
       std::vector<std::pair<uint64_t, uint64_t>>{{kOutboxDataBytes, 8},
                                                  {kOutboxDataBytes - 4, 8},
                                                  {~uint64_t{0} - 3, 8},
                                                  {0, 9},
                                                  {0, ~uint64_t{0}}}) {
    const std::string error = heard(offset, bytes);
    CAPTURE(error);
    CHECK(error.starts_with("[transport] rank 1 sends rank 0 "));
  }
}

TEST_CASE("no memory is taken for more than can come") {
  auto ranks = make_loopback(2, 200);
  const auto errors = errors_of(ranks, [](Transport& transport) {
    const std::vector<std::vector<int>> mine(2, std::vector<int>(transport.rank() + 3));
    alltoallv(transport, mine, 3);
  });
  for (const std::string& error : errors) {
    CHECK(error.starts_with("[transport] rank 1 announces 4 values, and at most 3 can come"));
  }
}

TEST_CASE("a group of NCCL's is ended whatever happens in it") {
  nccl::Library library = stand_in();
  CHECK(nccl::grouped(library, [] { CHECK(g_depth == 1); }) == nccl::kSuccess);
  CHECK(g_depth == 0);
  expect_message<gear::base::TransportError>(
      [&] { nccl::grouped(library, [] { throw gear::base::TransportError("ncclSend failed"); }); },
      "ncclSend failed");
  CHECK(g_depth == 0);
  library.group_start = [] { return 5; };
  CHECK(nccl::grouped(library, [] { FAIL("run outside of a group"); }) == 5);
}

TEST_CASE("chunks of a peer's memory that do not make one are refused") {
  const auto chunks = [](const std::vector<uint64_t>& sizes) {
    std::vector<MemoryChunk> made;
    for (const uint64_t bytes : sizes) {
      made.push_back({1000, bytes, 7});
    }
    return made;
  };
  for (const auto& sizes : std::vector<std::vector<uint64_t>>{{}, {1}, {64, 64}, {64, 64, 3}}) {
    uint64_t sum = 0;
    for (const uint64_t bytes : sizes) {
      sum += bytes;
    }
    CHECK(memory_of(1, chunks(sizes)).bytes() == sum);
  }
  for (const auto& sizes : std::vector<std::vector<uint64_t>>{
           {0}, {0, 64}, {64, 0}, {64, 32, 64}, {64, 65}, {UINT64_MAX, 1}}) {
    std::string error;
    try {
      memory_of(1, chunks(sizes));
    } catch (const gear::base::TransportError& thrown) {
      error = thrown.what();
    }
    CAPTURE(error);
    CHECK(error.starts_with("[transport] rank 1 exposes memory in "));
  }
}

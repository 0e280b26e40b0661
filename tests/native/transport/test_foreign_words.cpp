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

// What rank 0 hears in an exchange of 8 bytes from rank 1, which says that they lie there.
std::string heard(bool known, uint64_t offset, uint64_t bytes) {
  const std::shared_ptr<gear::memory::Region> region = gear::memory::make_region(
      gear::memory::Tier::kHost, shared_memory_bytes(2), {"", "0000000000000000", -1});
  std::string error;
  std::thread victim([&] {
    try {
      const auto transport = make_shared_memory(region, 0, 2, 200);
      const std::vector<ConstBytes> to(2);
      const std::vector<uint64_t> sizes{0, 8};
      const auto came = known ? transport->exchange(to, sizes) : transport->exchange(to);
      CHECK(came[1].size() == 8);
    } catch (const gear::base::TransportError& thrown) {
      error = thrown.what();
    }
  });
  SharedRounds stranger(region, 1, 2, 200, std::make_shared<Failure>());
  Outbox& own = stranger.begin(Call::kExchange);
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
  for (const bool known : {false, true}) {
    CAPTURE(known);
    CHECK(heard(known, 0, 8) == "");
    for (const auto& [offset, bytes] :
         std::vector<std::pair<uint64_t, uint64_t>>{{kOutboxDataBytes, 8},
                                                    {kOutboxDataBytes - 4, 8},
                                                    {~uint64_t{0} - 3, 8},
                                                    {0, 9},
                                                    {0, ~uint64_t{0}}}) {
      const std::string error = heard(known, offset, bytes);
      CAPTURE(error);
      CHECK(error.starts_with("[transport] rank 1 sends rank 0 "));
    }
    CHECK(heard(known, 0, 7)
              .starts_with("[transport] exchange: rank 1 gives 7 bytes, rank 0 expects 8 of it"));
  }
}

TEST_CASE("bytes that are no values are refused") {
  auto ranks = make_loopback(2, 200);
  const auto errors = errors_of(ranks, [](Transport& transport) {
    if (transport.rank() == 0) {
      exchange_lists(transport, std::vector<std::vector<int64_t>>(2));
    } else {
      exchange_lists(transport, std::vector<std::vector<int32_t>>(2, std::vector<int32_t>(3)));
    }
  });
  CHECK(errors[0].starts_with("[transport] rank 1 sends 12 bytes, which are no values of 8"));
  CHECK(errors[1].empty());
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

// Two ranks in two machines: one owns rows and is stopped, the other reads them.
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/numbers/philox.h"
#include "published_rank.h"
#include "rank_process.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/verbs.h"
#include "two_machines.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr uint16_t kPort = 18515;
constexpr double kTimeout = 60;
constexpr uint64_t kRows = 1024;
constexpr uint64_t kRowBytes = 4096;

std::vector<std::byte> rows_of(uint32_t rank) {
  std::vector<uint64_t> words(kRows * kRowBytes / sizeof(uint64_t));
  for (uint64_t i = 0; i < words.size(); ++i) {
    words[i] = (rank + 1) * 0x9e3779b97f4a7c15 * (i + 1);
  }
  std::vector<std::byte> rows(kRows * kRowBytes);
  std::memcpy(rows.data(), words.data(), rows.size());
  return rows;
}

// What both ranks have: rows that are exposed as they are, and a shard that is published.
struct MachineRank {
  explicit MachineRank(uint32_t rank)
      : transport(make_verbs(std::move(messages_between_machines(rank, 2, kTimeout)[rank]), {})),
        rows(rows_of(rank)),
        memory(transport->expose(rows)),
        reader(memory->connect(*transport)),
        published(transport) {}

  // Reads 1000 rows of the other machine; how many are not what they are to be.
  uint64_t wrong_rows(uint64_t seed, const std::vector<std::byte>& there) const {
    const uint32_t owner = 1 - transport->rank();
    std::vector<RemoteRead> reads;
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t row = gear::base::philox(seed, 7, i).lo % kRows;
      reads.push_back({owner, row * kRowBytes, kRowBytes, i * kRowBytes});
    }
    const ConstBytes read = reader->read(reads, reads.size() * kRowBytes);
    uint64_t wrong = 0;
    for (const RemoteRead& one : reads) {
      wrong += std::memcmp(read.data() + one.to, there.data() + one.from, one.bytes) != 0;
    }
    return wrong;
  }

  std::shared_ptr<Transport> transport;
  std::vector<std::byte> rows;
  std::unique_ptr<RemoteMemory> memory;
  std::unique_ptr<RemoteReader> reader;
  PublishedRank published;
};

void tell(const Connection& other) {
  const std::byte one{1};
  other.send({&one, 1});
}

void wait_for(const Connection& other) {
  std::byte one{};
  other.receive({&one, 1});
}

}  // namespace

TEST_CASE("rdma machines: the owner's, 10.77.0.2" * doctest::skip()) {
  const Connection reader = Listener(kPort).accept();
  RankProcess owner([&] {
    const MachineRank here(1);
    ::raise(SIGSTOP);
  });
  while (owner.state() != "T" && owner.state() != "Z") {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (owner.state() == "Z") {
    FAIL(owner.words());
  }
  tell(reader);
  wait_for(reader);
  CHECK(owner.state() == "T");
  REQUIRE(std::system("ip link set eth0 down") == 0);
}

TEST_CASE("rdma machines: the reader's, 10.77.0.1" * doctest::skip()) {
  const Connection owner = Connection::made("10.77.0.2", kPort);
  const MachineRank here(0);
  wait_for(owner);  // it is stopped
  const std::vector<std::byte> there = rows_of(1);
  uint64_t wrong = 0;
  for (uint64_t seed = 0; seed < 2; ++seed) {
    wrong += here.wrong_rows(seed, there);
  }
  CHECK(wrong == 0);
  const auto [wrong_items, stats] = here.published.pull(2);
  CHECK(wrong_items == 0);
  CHECK(stats.one_sided_bytes > 0);
  MESSAGE("2000 rows of 4096 bytes, and 2000 items, ", stats.one_sided_bytes,
          " bytes of them by RDMA");
  tell(owner);
  std::string said;
  try {
    for (uint64_t seed = 0; seed < 1000; ++seed) {
      static_cast<void>(here.wrong_rows(seed, there));
    }
  } catch (const gear::base::TransportError& error) {
    said = error.what();
  }
  MESSAGE("the other machine's link went down: ", said);
  CHECK(said.find("[transport] rank 0 reads rows of rank 1 by verbs (") == 0);
  CHECK(said.find("it does not answer: it has ended, or the link is down") != std::string::npos);
}

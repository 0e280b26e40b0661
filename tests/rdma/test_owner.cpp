// What becomes of reads whose owner sleeps, ends or cannot be reached.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/numbers/philox.h"
#include "rank_process.h"
#include "scoped_variable.h"
#include "transport/failure.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/shared/shared_memory.h"
#include "transport/verbs.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr double kTimeout = 20;
constexpr uint64_t kRows = 4096;
constexpr uint64_t kRowBytes = 4096;

std::string fresh_name() {
  static int number = 0;
  return gear::base::cat("test-rdma-", ::getpid(), "-", number++);
}

std::vector<std::byte> rows_of(uint32_t rank) {
  std::vector<uint64_t> words(kRows * kRowBytes / sizeof(uint64_t));
  uint64_t word = rank + 1;
  for (uint64_t& one : words) {
    one = word += 0x9e3779b97f4a7c15;  // no two alike
  }
  std::vector<std::byte> rows(kRows * kRowBytes);
  std::memcpy(rows.data(), words.data(), rows.size());
  return rows;
}

// One of two ranks: its end of the transport, what it exposes, and its reader.
struct End {
  End(const std::string& name, uint32_t rank, double timeout_s = kTimeout)
      : transport(make_verbs(make_shared_memory(name, rank, 2, timeout_s), {})),
        memory_bytes(rows_of(rank)),
        there(rows_of(1 - rank)) {
    memory = transport->expose(memory_bytes);
    reader = memory->connect(*transport);
  }

  // Reads `count` rows of the other rank, and says how many are not what they are to be.
  uint64_t wrong_rows(uint64_t seed, uint64_t count) const {
    const uint32_t other = 1 - transport->rank();
    std::vector<RemoteRead> reads;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t row = gear::base::philox(seed, 4, i).lo % kRows;
      reads.push_back({other, row * kRowBytes, kRowBytes, i * kRowBytes});
    }
    const ConstBytes read = reader->read(reads, count * kRowBytes);
    uint64_t wrong = 0;
    for (const RemoteRead& one : reads) {
      wrong += std::memcmp(read.data() + one.to, there.data() + one.from, one.bytes) != 0;
    }
    return wrong;
  }

  std::unique_ptr<Transport> transport;
  std::vector<std::byte> memory_bytes;
  std::vector<std::byte> there;  // what the other exposes
  std::unique_ptr<RemoteMemory> memory;
  std::unique_ptr<RemoteReader> reader;
};

void sleep_on() {
  for (;;) {
    ::pause();
  }
}

std::string error_of_read(const End& end) {
  const auto start = std::chrono::steady_clock::now();
  std::string said;
  try {
    for (uint64_t i = 0; i < 1000; ++i) {
      const uint64_t wrong = end.wrong_rows(i, 64);
      CHECK(wrong == 0);
    }
  } catch (const gear::base::TransportError& error) {
    said = error.what();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() < kTimeout + 2);
  MESSAGE("after ", took.count(), " s: ", said);
  return said;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void run(const char* command) { REQUIRE(std::system(command) == 0); }

// What rank 0 is told where the ranks cannot meet.
std::string refusal(const std::string& name) {
  try {
    const End end(name, 0);
  } catch (const gear::base::TransportError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("rdma: 20,000 rows of an owner that is stopped") {
  const std::string name = fresh_name();
  RankProcess owner([&] {
    const End end(name, 1);
    sleep_on();
  });
  const End end(name, 0);
  owner.signal(SIGSTOP);
  owner.wait_stopped();
  const auto start = std::chrono::steady_clock::now();
  uint64_t wrong = 0;
  for (uint64_t batch = 0; batch < 20; ++batch) {
    wrong += end.wrong_rows(batch, 1000);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(wrong == 0);
  CHECK(owner.state() == "T");
  MESSAGE("20000 rows of 4096 bytes, with the comparison, in ", took.count(), " s");
}

TEST_CASE("rdma: an owner that is killed") {
  const std::string name = fresh_name();
  RankProcess owner([&] {
    const End end(name, 1);
    sleep_on();
  });
  const End end(name, 0);
  CHECK(end.wrong_rows(1, 64) == 0);
  owner.signal(SIGKILL);
  CHECK(owner.words() == "");
  const std::string said = error_of_read(end);
  CHECK(contains(said, "[transport] rank 0 reads rows of rank 1 by verbs ("));
  CHECK(contains(said,
                 "): transport retry counter exceeded (12): it does not answer: it has "
                 "ended, or the link is down"));
}

TEST_CASE("rdma: memory that is no longer offered") {
  const std::string name = fresh_name();
  RankProcess owner([&] {
    End end(name, 1);
    end.memory.reset();
    end.transport->allgather({}, {});
    sleep_on();
  });
  const End end(name, 0);
  end.transport->allgather({}, {});
  const std::string said = error_of_read(end);
  CHECK(contains(said, "rank 0 reads rows of rank 1 by verbs ("));
  CHECK(contains(said, "): remote access error (10): it does not offer the memory asked for"));
}

TEST_CASE("rdma: a link that goes down") {
  const std::string name = fresh_name();
  RankProcess owner([&] {
    const End end(name, 1);
    sleep_on();
  });
  const End end(name, 0);
  CHECK(end.wrong_rows(1, 64) == 0);
  run("ip link set eth0 down");
  const std::string said = error_of_read(end);
  std::string refused;
  try {
    static_cast<void>(describe_verbs_port());
  } catch (const gear::base::TransportError& error) {
    refused = error.what();
  }
  run("ip link set eth0 up");
  CHECK(contains(said, "rank 0 reads rows of rank 1 by verbs ("));
  // The device finds it when it sends, or when no answer comes.
  const bool named = contains(said,
                              "local QP operation error (2): this rank's device cannot send: "
                              "its link is down") ||
                     contains(said, "it does not answer: it has ended, or the link is down");
  CHECK(named);
  CHECK(contains(refused,
                 "[transport] no RDMA port can be used: rxe0 port 1 is not active: see "
                 "ibv_devinfo, and ip link for RoCE"));
}

TEST_CASE("rdma: an address of the other family") {
  run("ip addr add fd00:77::1/64 dev eth0 nodad");
  int index = -1;
  for (int i = 0; i < 16 && index < 0; ++i) {
    const ScopedVariable set("GEAR_VERBS_GID", std::to_string(i));
    try {
      index = contains(describe_verbs_port(), "fd00:77::1") ? i : -1;
    } catch (const gear::base::TransportError&) {  // none of this number
    }
  }
  REQUIRE(index >= 0);
  const std::string name = fresh_name();
  RankProcess other([&] {
    const ScopedVariable set("GEAR_VERBS_GID", std::to_string(index));
    const End end(name, 1);
  });
  const std::string said = refusal(name);
  CHECK(contains(said,
                 "rank 0: RoCE, GID ::ffff:10.77.0.1 cannot reach rank 1, RoCE, GID "
                 "fd00:77::1: set GEAR_VERBS_DEVICE and GEAR_VERBS_GID"));
  CHECK(other.words() == said);
}

TEST_CASE("rdma: a port that one rank alone does not have") {
  const std::string name = fresh_name();
  RankProcess other([&] {
    const ScopedVariable set("GEAR_VERBS_DEVICE", "mlx5_7");
    const End end(name, 1);
  });
  const std::string said = refusal(name);
  CHECK(contains(said,
                 "[transport] verbs: rank 1: GEAR_VERBS_DEVICE='mlx5_7' is no RDMA device or "
                 "port here: there are rxe0"));
  CHECK(other.words() == said);
}

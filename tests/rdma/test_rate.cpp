// What GEAR's reader costs above the reads themselves: both in one run, alternately. By hand, with
// --no-skip, and a binary without sanitizers.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/numbers/philox.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registered_memory.h"
#include "transport/verbs/verbs_ranks.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr double kLong = 200;
constexpr uint64_t kPoolBytes = uint64_t{16} << 20;
constexpr uint32_t kPairs = 4;
constexpr uint32_t kChain = 32;
constexpr uint32_t kDepth = 256;  // reads of a pair that are under way at most
constexpr int kTurns = 5;
constexpr double kSeconds = 0.5;  // of a turn

uint64_t rows_of_a_batch(uint64_t row_bytes) {
  return std::min<uint64_t>(1024, kPoolBytes / row_bytes);
}

uint64_t random_place(uint64_t batch, uint64_t number, uint64_t row_bytes) {
  return gear::base::philox(batch, 6, number).lo % (kPoolBytes / row_bytes) * row_bytes;
}

// Rows a second of `read_batch(batch)`, called for kSeconds.
template <class ReadBatch>
double rate(uint64_t row_bytes, const ReadBatch& read_batch) {
  const auto start = std::chrono::steady_clock::now();
  std::chrono::duration<double> took{};
  uint64_t batches = 0;
  do {
    read_batch(batches++);
    took = std::chrono::steady_clock::now() - start;
  } while (took.count() < kSeconds);
  return static_cast<double>(batches * rows_of_a_batch(row_bytes)) / took.count();
}

// Lists of reads, the last of each signalled, posted and polled by hand; both ends are here.
class PlainReads {
 public:
  PlainReads() {
    for (uint32_t k = 0; k < kPairs; ++k) {
      readers_.push_back(std::make_unique<verbs::QueuePair>(port_, completions_.get(), kDepth));
      owners_.push_back(std::make_unique<verbs::QueuePair>(port_, completions_.get(), kDepth));
      readers_[k]->connect(port_.address(), owners_[k]->address(), 14);
      owners_[k]->connect(port_.address(), readers_[k]->address(), 14);
    }
  }

  void read(uint64_t batch, uint64_t row_bytes) {
    const uint64_t rows = rows_of_a_batch(row_bytes);
    const MemoryChunk from = there_registered_.chunked().from(0);
    const MemoryChunk to = here_registered_.chunked().from(0);
    uint64_t posted = 0;
    uint64_t ended = 0;
    for (uint32_t turn = 0; ended < rows; turn = (turn + 1) % kPairs) {
      if (posted < rows && under_way_[turn] + kChain <= kDepth) {
        const auto count = static_cast<uint32_t>(std::min<uint64_t>(kChain, rows - posted));
        for (uint32_t i = 0; i < count; ++i, ++posted) {
          places_[i] = {to.address + posted * row_bytes, static_cast<uint32_t>(row_bytes),
                        static_cast<uint32_t>(to.key)};
          ibv_send_wr& request = requests_[i];
          request = {};
          request.wr_id = uint64_t{turn} << 32 | count;
          request.next = i + 1 < count ? &requests_[i + 1] : nullptr;
          request.sg_list = &places_[i];
          request.num_sge = 1;
          request.opcode = IBV_WR_RDMA_READ;
          request.send_flags = i + 1 < count ? 0 : IBV_SEND_SIGNALED;
          request.wr.rdma.remote_addr = from.address + random_place(batch, posted, row_bytes);
          request.wr.rdma.rkey = static_cast<uint32_t>(from.key);
        }
        readers_[turn]->post(requests_.data());
        under_way_[turn] += count;
      }
      std::array<ibv_wc, 16> found;
      const int polled = port_.library().poll_cq(completions_.get(), found.size(), found.data());
      REQUIRE(polled >= 0);
      for (int i = 0; i < polled; ++i) {
        REQUIRE(found[static_cast<size_t>(i)].status == IBV_WC_SUCCESS);
        const uint64_t id = found[static_cast<size_t>(i)].wr_id;
        under_way_[id >> 32] -= static_cast<uint32_t>(id);
        ended += static_cast<uint32_t>(id);
      }
    }
  }

 private:
  verbs::VerbsPort port_{verbs_under_test(), verbs::port_choice()};
  std::vector<std::byte> there_ = std::vector<std::byte>(kPoolBytes);
  std::vector<std::byte> here_ = std::vector<std::byte>(kPoolBytes);
  verbs::RegisteredMemory there_registered_{port_, there_, MemoryUse::kExposed, kPoolBytes};
  verbs::RegisteredMemory here_registered_{port_, here_, MemoryUse::kLanding, kPoolBytes};
  verbs::Owned<ibv_cq> completions_ =
      verbs::own(port_.library().create_cq(port_.context(), kPairs* kDepth, nullptr, nullptr, 0),
                 port_.library().destroy_cq);
  std::vector<std::unique_ptr<verbs::QueuePair>> readers_;
  std::vector<std::unique_ptr<verbs::QueuePair>> owners_;
  std::array<uint32_t, kPairs> under_way_{};
  std::array<ibv_send_wr, kChain> requests_{};
  std::array<ibv_sge, kChain> places_{};
};

void read_by(RemoteReader& reader, uint64_t batch, uint64_t row_bytes) {
  std::vector<RemoteRead> reads(rows_of_a_batch(row_bytes));
  for (uint64_t i = 0; i < reads.size(); ++i) {
    reads[i] = {1, random_place(batch, i, row_bytes), row_bytes, i * row_bytes};
  }
  static_cast<void>(reader.read(reads, reads.size() * row_bytes));
}

}  // namespace

TEST_CASE("rdma rates: rows by a reader, beside plain chained reads" * doctest::skip()) {
  Ranks ranks = make_verbs_ranks(2, kLong, {kPoolBytes, kPairs, nullptr});
  PlainReads plain;
  const auto errors = errors_of(ranks, [&](Transport& transport) {
    std::vector<std::byte> mine(kPoolBytes);
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    for (uint64_t bytes = 64; bytes <= 65536 && transport.rank() == 0; bytes *= 4) {
      double by_reader = 0;
      double by_hand = 0;
      for (int turn = 0; turn < kTurns; ++turn) {
        by_hand = std::max(by_hand, rate(bytes, [&](uint64_t n) { plain.read(n, bytes); }));
        by_reader =
            std::max(by_reader, rate(bytes, [&](uint64_t n) { read_by(*reader, n, bytes); }));
      }
      MESSAGE("rows of ", bytes, " bytes: ", by_reader, " a second by the reader, ", by_hand,
              " by plain reads: ", by_reader / by_hand);
    }
    transport.allgather({}, {});
  });
  CHECK(errors == std::vector<std::string>(2));
}

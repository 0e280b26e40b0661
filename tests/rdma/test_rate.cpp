// How fast rows come by each way, all in one run, alternately: run.sh --rates, by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/numbers/philox.h"
#include "base/threads/fence.h"
#include "base/threads/spin.h"
#include "group/parcels/parcel_arena.h"
#include "transport/mpi.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/typed.h"
#include "transport/verbs.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/registered_memory.h"
#include "transport/verbs/verbs_ranks.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr uint64_t kPoolBytes = uint64_t{16} << 20;
constexpr uint32_t kPairs = 4;
constexpr uint32_t kChain = 32;
constexpr uint32_t kDepth = 256;  // reads of a pair that are under way at most
constexpr size_t kTurns = 15;
constexpr double kSeconds = 0.15;  // of a turn

uint64_t rows_of_a_batch(uint64_t row_bytes) {
  return std::min<uint64_t>(1024, kPoolBytes / 4 / row_bytes);
}

uint64_t random_place(uint64_t batch, uint64_t number, uint64_t row_bytes) {
  return gear::base::philox(batch, 6, number).lo % (kPoolBytes / row_bytes) * row_bytes;
}

// Of rank 1; every word says where it lies.
std::vector<std::byte> pool() {
  std::vector<uint64_t> words(kPoolBytes / sizeof(uint64_t));
  for (uint64_t i = 0; i < words.size(); ++i) {
    words[i] = i * sizeof(uint64_t);
  }
  std::vector<std::byte> bytes(kPoolBytes);
  std::memcpy(bytes.data(), words.data(), kPoolBytes);
  return bytes;
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

  ConstBytes read(uint64_t batch, uint64_t row_bytes) {
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
    return ConstBytes(here_).first(rows * row_bytes);
  }

 private:
  verbs::VerbsPort port_{verbs_under_test(), verbs::port_choice()};
  std::vector<std::byte> there_ = pool();
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

// Rank 0 of two gets a batch of rows of rank 1.
class Ways {
 public:
  Ways(Transport& messages, Transport& verbs)
      : messages_(messages), arena_(verbs), memory_(verbs.expose(pool_)), packed_(kPoolBytes) {
    reader_ = memory_->connect(verbs);
    arena_.make(std::bit_ceil(kPoolBytes));
  }

  // Rank 1 does nothing.
  ConstBytes read(uint64_t batch, uint64_t row_bytes) {
    std::vector<RemoteRead> reads(rows_of_a_batch(row_bytes));
    for (uint64_t i = 0; i < reads.size(); ++i) {
      reads[i] = {1, random_place(batch, i, row_bytes), row_bytes, i * row_bytes};
    }
    return reader_->read(reads, reads.size() * row_bytes);
  }

  // Collective, as the next. A message says where the rows lie, and a byte that they were read.
  ConstBytes read_packed(uint64_t batch, uint64_t row_bytes) {
    static constexpr std::byte kRead{1};
    const uint64_t bytes = rows_of_a_batch(row_bytes) * row_bytes;
    const bool owns = messages_.rank() == 1;
    uint64_t place = 0;
    if (owns) {
      place = arena_.place(bytes).value();
      pack(batch, row_bytes, arena_.at(place));
      gear::base::store_fence();
    }
    std::array<ConstBytes, 2> to;
    std::array<uint64_t, 2> sizes{};
    to[0] = owns ? std::as_bytes(std::span(&place, 1)) : ConstBytes();
    sizes[1] = owns ? 0 : sizeof place;
    const std::span<const ConstBytes> told = messages_.exchange(to, sizes);
    ConstBytes rows;
    if (!owns) {
      std::memcpy(&place, told[1].data(), sizeof place);
      const gear::group::ParcelArena::Piece piece{1, place, bytes};
      rows = arena_.read({&piece, 1})[0];
    }
    to = {ConstBytes(), owns ? ConstBytes() : ConstBytes(&kRead, 1)};
    sizes = {owns ? 1U : 0U, 0U};
    messages_.exchange(to, sizes);
    arena_.clear();
    return rows;
  }

  ConstBytes receive(uint64_t batch, uint64_t row_bytes) {
    const uint64_t bytes = rows_of_a_batch(row_bytes) * row_bytes;
    std::array<ConstBytes, 2> to;
    std::array<uint64_t, 2> sizes{};
    if (messages_.rank() == 1) {
      pack(batch, row_bytes, packed_.data());
      to[0] = ConstBytes(packed_).first(bytes);
    } else {
      sizes[1] = bytes;
    }
    return messages_.exchange(to, sizes)[1];
  }

 private:
  void pack(uint64_t batch, uint64_t row_bytes, std::byte* out) const {
    for (uint64_t i = 0; i < rows_of_a_batch(row_bytes); ++i) {
      std::memcpy(out + i * row_bytes, pool_.data() + random_place(batch, i, row_bytes), row_bytes);
    }
  }

  Transport& messages_;
  std::vector<std::byte> pool_ = pool();
  gear::group::ParcelArena arena_;
  std::unique_ptr<RemoteMemory> memory_;
  std::unique_ptr<RemoteReader> reader_;
  std::vector<std::byte> packed_;
};

double median(std::array<double, kTurns> values) {
  std::ranges::sort(values);
  return values[kTurns / 2];
}

using Batch = std::function<ConstBytes(uint64_t batch)>;

// The same on both ranks: rows a second of a turn of kSeconds, as rank 0 sees it.
double rate(Transport& messages, uint64_t row_bytes, const Batch& get) {
  const auto seconds_of = [&](uint64_t batches) {
    static_cast<void>(allgather(messages, uint8_t{0}));  // both begin
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t batch = 0; batch < batches; ++batch) {
      const ConstBytes rows = get(batch);
      for (uint64_t i = 0; batch == 0 && i < rows_of_a_batch(row_bytes); ++i) {
        uint64_t word = 0;
        std::memcpy(&word, rows.data() + i * row_bytes, rows.empty() ? 0 : sizeof word);
        REQUIRE((rows.empty() || word == random_place(batch, i, row_bytes)));
      }
    }
    return allgather(messages, gear::base::seconds_since(start))[0];
  };
  const auto batches = static_cast<uint64_t>(std::max(1.0, kSeconds / seconds_of(1)));
  return static_cast<double>(batches * rows_of_a_batch(row_bytes)) / seconds_of(batches);
}

}  // namespace

TEST_CASE("rdma rates: rows by a reader, by plain chained reads, packed, and by messages of MPI" *
          doctest::skip()) {
  const auto messages = make_mpi({});
  REQUIRE(messages->size() == 2);
  const auto verbs =
      make_verbs(std::shared_ptr<Transport>(messages->duplicate()), {kPoolBytes, kPairs, nullptr});
  Ways ways(*messages, *verbs);
  const bool reads = messages->rank() == 0;
  std::optional<PlainReads> plain;
  if (reads) {
    plain.emplace();
  }
  for (uint64_t bytes = 64; bytes <= 65536; bytes *= 4) {
    const std::array<Batch, 4> all{
        [&](uint64_t n) { return reads ? ways.read(n, bytes) : ConstBytes(); },
        [&](uint64_t n) { return reads ? plain->read(n, bytes) : ConstBytes(); },
        [&](uint64_t n) { return ways.read_packed(n, bytes); },
        [&](uint64_t n) { return ways.receive(n, bytes); }};
    std::array<std::array<double, kTurns>, 4> rates{};
    for (size_t turn = 0; turn < kTurns; ++turn) {
      for (size_t way = 0; way < all.size(); ++way) {
        rates[way][turn] = rate(*messages, bytes, all[way]);
      }
    }
    // What else the machine does changes from turn to turn: ratios are of one turn.
    const auto told = [&](size_t way) {
      std::array<double, kTurns> ratios{};
      for (size_t turn = 0; turn < kTurns; ++turn) {
        ratios[turn] = rates[0][turn] / rates[way][turn];
      }
      return gear::base::cat(median(rates[way]), " (", median(ratios), ")");
    };
    if (reads) {
      MESSAGE("rows of ", bytes, " bytes, medians: ", median(rates[0]),
              " a second by the reader, beside (its ratio) ", told(1), " by plain reads, ", told(2),
              " packed, ", told(3), " by MPI");
    }
  }
}

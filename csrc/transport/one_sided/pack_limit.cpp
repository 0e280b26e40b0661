#include "transport/one_sided/pack_limit.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/errors.h"
#include "base/numbers/philox.h"
#include "base/threads/spin.h"
#include "memory/region.h"
#include "transport/on_all.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/typed.h"

namespace gear::transport {
namespace {

constexpr std::string_view kVariable = "GEAR_PACK_BELOW";
constexpr int64_t kMostTold = int64_t{1} << 40;
constexpr uint64_t kPoolBytes = uint64_t{8} << 20;  // more than a core's own cache
constexpr uint64_t kMostBytes = uint64_t{1} << 20;  // of one turn
constexpr uint64_t kMostRows = 256;
constexpr uint64_t kLeastRow = 64;
constexpr uint64_t kMostRow = 65536;
constexpr uint64_t kStep = 4;  // from one size of rows to the next
constexpr int kTurns = 3;      // of which the quickest counts

// Of the rows of a turn.
struct Seconds {
  double alone = 0;
  double packed = 0;
};

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return base::seconds_since(start);
}

class Trial {
 public:
  Trial(RemoteReader& reader, Bytes pool, uint32_t owner)
      : reader_(reader), pool_(pool), owner_(owner), packed_(kMostBytes) {
    const RemoteRead first{owner_, 0, kLeastRow, 0};  // connects
    static_cast<void>(reader_.read({&first, 1}, kMostBytes));
  }

  Seconds measure(uint64_t row_bytes) {
    Seconds least;
    for (int turn = 0; turn < kTurns; ++turn) {
      list_rows(row_bytes);
      const uint64_t bytes = rows_.size() * row_bytes;
      const RemoteRead all{owner_, 0, bytes, 0};
      const double alone = seconds_of([&] { static_cast<void>(reader_.read(rows_, bytes)); });
      // The owner does the same work at the same time: what it takes here is what it takes there.
      const double packed = seconds_of([&] {
        for (const RemoteRead& row : rows_) {
          std::memcpy(packed_.data() + row.to, pool_.data() + row.from, row.bytes);
        }
        static_cast<void>(reader_.read({&all, 1}, bytes));
      });
      least.alone = turn == 0 ? alone : std::min(least.alone, alone);
      least.packed = turn == 0 ? packed : std::min(least.packed, packed);
    }
    return least;
  }

 private:
  void list_rows(uint64_t row_bytes) {
    rows_.resize(std::min(kMostRows, kMostBytes / row_bytes));
    for (uint64_t i = 0; i < rows_.size(); ++i) {
      const uint64_t place = base::philox(row_bytes, 7, drawn_++).lo % (kPoolBytes / row_bytes);
      rows_[i] = {owner_, place * row_bytes, row_bytes, i * row_bytes};
    }
  }

  RemoteReader& reader_;
  Bytes pool_;
  uint32_t owner_;
  std::vector<std::byte> packed_;
  std::vector<RemoteRead> rows_;
  uint64_t drawn_ = 0;
};

uint64_t measure(Transport& transport, uint32_t owner) {
  std::unique_ptr<memory::Region> pool;
  agree(transport, "memory to measure packing in", failure_of([&pool] {
          pool = memory::make_region(memory::Tier::kHost, kPoolBytes);
          std::memset(pool->data(), 1, kPoolBytes);  // pages of its own, not all one page of zeros
        }));
  const auto exposed = transport.expose({pool->data(), kPoolBytes});
  if (!exposed) {
    return 0;
  }
  std::vector<uint8_t> from(transport.size());
  from[owner] = 1;
  const auto reader = exposed->connect(transport, from);
  Trial trial(*reader, {pool->data(), kPoolBytes}, owner);
  uint64_t below = 0;
  int lost = 0;  // sizes in a row: one may have been bad luck
  for (uint64_t row_bytes = kLeastRow; row_bytes <= kMostRow && lost < 2; row_bytes *= kStep) {
    Seconds all;
    for (const Seconds& one : allgather(transport, trial.measure(row_bytes))) {
      all.alone += one.alone;
      all.packed += one.packed;
    }
    lost = all.packed < all.alone ? 0 : lost + 1;
    if (lost == 0) {
      below = row_bytes * 2;  // between this size and the next, in equal ratios
    }
  }
  static_cast<void>(allgather(transport, uint8_t{1}));  // nobody leaves while others read
  return below;
}

// What this rank was told: nothing is -1.
int64_t told() { return base::env_int("GEAR_PACK_BELOW", 0, kMostTold).value_or(-1); }

}  // namespace

uint64_t agree_on_pack_below(Transport& transport, uint32_t owner) {
  int64_t own = -1;
  const std::string failed = failures(transport, kVariable, failure_of([&own] { own = told(); }));
  if (!failed.empty()) {
    throw base::InvalidArgument(failed);
  }
  const std::vector<int64_t> all = allgather(transport, own);
  for (uint32_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0]) {
      const auto text = [](int64_t value) {
        return value < 0 ? std::string("not set") : base::cat(value);
      };
      throw base::InvalidArgument(base::cat("[transport] ", kVariable, " on rank ", r, " is ",
                                            text(all[r]), ", on rank 0 ", text(all[0]),
                                            ": give every rank the same, or none"));
    }
  }
  return own >= 0 ? static_cast<uint64_t>(own) : measure(transport, owner);
}

}  // namespace gear::transport

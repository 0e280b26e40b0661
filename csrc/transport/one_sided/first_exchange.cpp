#include "transport/one_sided/first_exchange.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "transport/collective.h"
#include "transport/on_all.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/typed.h"

namespace gear::transport {
namespace {

constexpr uint64_t kExchangeBytes = uint64_t{512} << 10;  // of rows of one size
constexpr uint64_t kExchangePool = 2 * kExchangeBytes;
constexpr std::array<uint64_t, 2> kRowBytes{1024, 65536};
constexpr uint32_t kTimes = 3;
constexpr uint64_t kStride = 389;  // of places; odd, so that no row comes twice

uint64_t place(uint64_t row, uint64_t row_bytes) {
  return row * kStride % (kExchangePool / row_bytes) * row_bytes;
}

std::vector<std::byte> pool_of(uint32_t rank) {
  std::vector<std::byte> pool(kExchangePool);
  for (uint64_t i = 0; i < pool.size(); ++i) {
    pool[i] = static_cast<std::byte>((i * 2654435761U + rank * 97U) >> 7);
  }
  return pool;
}

// The messages of a transport, with less time for reads.
class Impatient final : public Forwarding {
 public:
  Impatient(Transport& messages, double timeout_s) : Forwarding(messages), timeout_s_(timeout_s) {}

  double timeout_s() const noexcept override { return timeout_s_; }

 private:
  double timeout_s_;
};

// A way for rows to come.
class Rows {
 public:
  virtual ~Rows() = default;
  /// Rows of one size, one behind the other; valid until the next call. Collective.
  virtual ConstBytes get(uint64_t row_bytes) = 0;
};

class PackedRows final : public Rows {
 public:
  PackedRows(Transport& transport, std::span<const uint32_t> sources, ConstBytes pool)
      : transport_(transport), sources_(sources), pool_(pool), packed_(kExchangeBytes) {}

  ConstBytes get(uint64_t row_bytes) override {
    for (uint64_t row = 0; row < kExchangeBytes / row_bytes; ++row) {
      std::memcpy(packed_.data() + row * row_bytes, pool_.data() + place(row, row_bytes),
                  row_bytes);
    }
    std::vector<ConstBytes> to(transport_.size());
    std::vector<uint64_t> sizes(transport_.size());
    for (uint32_t r = 0; r < to.size(); ++r) {
      to[r] = sources_[r] == transport_.rank() ? ConstBytes(packed_) : ConstBytes();
    }
    const uint32_t source = sources_[transport_.rank()];
    sizes[source] = kExchangeBytes;
    return transport_.exchange(to, sizes)[source];
  }

 private:
  Transport& transport_;
  std::span<const uint32_t> sources_;
  ConstBytes pool_;
  std::vector<std::byte> packed_;
};

std::vector<uint8_t> only(uint32_t rank, uint32_t size) {
  std::vector<uint8_t> ranks(size);
  ranks[rank] = 1;
  return ranks;
}

class ReadRows final : public Rows {
 public:
  ReadRows(Transport& transport, uint32_t source, std::unique_ptr<RemoteMemory> memory,
           double patience_s)
      : transport_(transport),
        source_(source),
        memory_(std::move(memory)),
        control_(transport, patience_s),
        reader_(memory_->connect(control_, only(source, transport.size()))) {}

  ConstBytes get(uint64_t row_bytes) override {
    reads_.clear();
    for (uint64_t row = 0; row < kExchangeBytes / row_bytes; ++row) {
      reads_.push_back({source_, place(row, row_bytes), row_bytes, row * row_bytes});
    }
    ConstBytes landed;
    const std::string failed = failure_of([&] { landed = reader_->read(reads_, kExchangeBytes); });
    const auto missed = allgather(transport_, static_cast<uint64_t>(!failed.empty()));
    if (std::ranges::find(missed, uint64_t{1}) != missed.end()) {
      agree(transport_, transport_.name(), failed);
    }
    return landed;
  }

 private:
  Transport& transport_;
  uint32_t source_;
  std::unique_ptr<RemoteMemory> memory_;
  Impatient control_;
  std::unique_ptr<RemoteReader> reader_;
  std::vector<RemoteRead> reads_;
};

// What is wrong with rows of `row_bytes`; empty: nothing.
std::string difference(ConstBytes rows, ConstBytes pool, uint64_t row_bytes, uint32_t source) {
  for (uint64_t row = 0; row < kExchangeBytes / row_bytes; ++row) {
    if (std::memcmp(rows.data() + row * row_bytes, pool.data() + place(row, row_bytes),
                    row_bytes) != 0) {
      return base::cat("row ", row, " of ", row_bytes, " bytes of rank ", source,
                       " came with other bytes than its owner has");
    }
  }
  return {};
}

void check(const Transport& transport, std::span<const uint32_t> sources) {
  if (sources.size() != transport.size()) {
    throw base::InvalidArgument(base::cat("[transport] first exchange: ", sources.size(),
                                          " sources for ", transport.size(),
                                          " ranks: one of each is allowed"));
  }
  for (uint32_t r = 0; r < sources.size(); ++r) {
    if (sources[r] >= sources.size() || sources[r] == r) {
      throw base::InvalidArgument(base::cat("[transport] first exchange: rank ", r, " of ",
                                            sources.size(), " gets rows of rank ", sources[r],
                                            ": another rank is allowed"));
    }
  }
}

}  // namespace

double first_exchange(Transport& transport, std::span<const uint32_t> sources, double patience_s) {
  using Clock = std::chrono::steady_clock;
  check(transport, sources);
  std::vector<std::byte> pool = pool_of(transport.rank());
  const uint32_t source = sources[transport.rank()];
  const std::vector<std::byte> wanted = pool_of(source);
  std::unique_ptr<Rows> rows;
  if (auto memory = transport.expose(pool)) {
    rows = std::make_unique<ReadRows>(transport, source, std::move(memory), patience_s);
  } else {
    rows = std::make_unique<PackedRows>(transport, sources, pool);
  }
  std::string wrong;
  std::vector<double> seconds;
  for (uint32_t time = 0; time <= kTimes; ++time) {
    std::chrono::duration<double> took{};
    for (const uint64_t row_bytes : kRowBytes) {
      static_cast<void>(allgather(transport, uint64_t{0}));  // all begin
      const auto start = Clock::now();
      const ConstBytes landed = rows->get(row_bytes);
      took += Clock::now() - start;
      if (wrong.empty()) {
        wrong = difference(landed, wanted, row_bytes, source);
      }
    }
    if (time > 0) {
      seconds.push_back(took.count());
    }
  }
  agree(transport, transport.name(), wrong);
  std::ranges::sort(seconds);
  const std::vector<double> all = allgather(transport, seconds[kTimes / 2]);
  return kRowBytes.size() * kExchangeBytes / std::ranges::max(all);
}

}  // namespace gear::transport

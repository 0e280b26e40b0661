#include "transport/shared/shared_memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "memory/shared/made_up_name.h"
#include "memory/shared/shared_region.h"
#include "transport/collective.h"
#include "transport/inbox.h"
#include "transport/shared/shared_rounds.h"

namespace gear::transport {
namespace {

// In the place of a schema: regions of other kinds, and of another layout of this one, are refused.
constexpr std::string_view kLayoutHash = "7472616e73000002";
constexpr std::chrono::milliseconds kLookAgainAfter{1};
constexpr uint64_t kAlignment = 64;
constexpr uint32_t kMaxRanks = 1024;
constexpr uint32_t kNobody = UINT32_MAX;
static_assert(kOutboxDataBytes / kMaxRanks >= kAlignment, "every receiver gets some bytes a round");

void copy_bytes(std::byte* target, const std::byte* source, uint64_t bytes) {
  if (bytes != 0) {
    std::memcpy(target, source, bytes);
  }
}

void check_size(uint32_t size) {
  if (size > kMaxRanks) {
    throw base::InvalidArgument(base::cat(
        "[transport] ", size, " ranks on one node: shared_memory carries ", kMaxRanks, " at most"));
  }
}

void check_known_as(std::span<const uint32_t> known_as, uint32_t size) {
  check_size(size);
  GEAR_CHECK(known_as.empty() || known_as.size() == size);
}

std::shared_ptr<memory::Region> attach(std::string_view name, uint32_t first, double timeout_s,
                                       const Failure& failure) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    try {
      return memory::SharedRegion::attach(name, kLayoutHash);
    } catch (const base::InvalidArgument& error) {
      if (std::chrono::steady_clock::now() >= deadline) {
        throw base::TransportError(
            base::cat(late_text(std::array<uint32_t, 1>{first}, call_name(Call::kStart), timeout_s),
                      " (", error.what(), ")"));
      }
    }
    failure.check();
    base::check_interrupt();
    std::this_thread::sleep_for(kLookAgainAfter);
  }
}

class SharedMemory final : public Transport {
 public:
  SharedMemory(std::shared_ptr<memory::Region> region, uint32_t rank, uint32_t size,
               double timeout_s, std::shared_ptr<Failure> failure, std::vector<uint32_t> known_as)
      : rounds_(std::move(region), rank, size, timeout_s, std::move(failure), std::move(known_as)),
        inbox_(size),
        sent_(size) {}

  std::string_view name() const noexcept override { return "shared_memory"; }
  uint32_t rank() const noexcept override { return rounds_.rank(); }
  uint32_t size() const noexcept override { return rounds_.size(); }
  double timeout_s() const noexcept override { return rounds_.timeout_s(); }
  void set_timeout_s(double timeout_s) override { rounds_.set_timeout_s(timeout_s); }
  void look() override { rounds_.throw_if_failed(); }

  void allgather(ConstBytes mine, Bytes all) override {
    check_allgather(size(), mine, all);
    gather(Call::kAllgather, mine, all);
  }
  using Transport::exchange;
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override;
  std::span<const ConstBytes> exchange_sparse(std::span<const ConstBytes> to,
                                              std::span<const uint8_t> from) override;
  std::unique_ptr<Transport> duplicate() override;
  void gather_to(uint32_t to, ConstBytes mine, Bytes all) override;
  void broadcast(uint32_t from, Bytes bytes) override;
  std::vector<uint32_t> awaited() override { return rounds_.awaited(); }

 private:
  uint32_t known(uint32_t r) const { return rounds_.known(r); }
  void gather(Call call, ConstBytes mine, Bytes all);
  std::span<const ConstBytes> pass(std::span<const ConstBytes> to, std::span<const uint64_t> sizes);
  void pack(std::span<const ConstBytes> to, std::span<const uint64_t> sizes);
  bool unpack(uint32_t r, std::span<const ConstBytes> to, std::span<const uint64_t> sizes);
  Outbox& begin(Call call);
  Outbox& await(uint32_t r, Call call);
  void check_call(uint32_t r, const Outbox& outbox, Call call);
  void check_total(uint32_t r, const Outbox& outbox, uint64_t bytes);
  void settle();

  SharedRounds rounds_;
  Inbox inbox_;
  std::vector<uint64_t> sent_;  // of the current exchange, by rank
  bool is_unsettled_ = false;   // all have not been waited for in this round: see gather_to
  uint32_t gathered_to_ = kNobody;
};

Outbox& SharedMemory::await(uint32_t r, Call call) {
  Outbox& outbox = rounds_.await(r);
  check_call(r, outbox, call);
  return outbox;
}

void SharedMemory::check_call(uint32_t r, const Outbox& outbox, Call call) {
  if (outbox.call != call) {
    rounds_.fail(other_call_text(known(r), call_name(outbox.call), known(rank()), call_name(call)));
  }
}

void SharedMemory::check_total(uint32_t r, const Outbox& outbox, uint64_t bytes) {
  if (outbox.total != bytes) {
    rounds_.fail(
        other_size_text(known(r), outbox.total, known(rank()), bytes, call_name(Call::kAllgather)));
  }
}

void SharedMemory::gather(Call call, ConstBytes mine, Bytes all) {
  uint64_t done = 0;
  do {
    const uint64_t bytes = std::min(mine.size() - done, kOutboxDataBytes);
    Outbox& own = begin(call);
    own.total = mine.size();
    copy_bytes(rounds_.layout().data(own), mine.data() + done, bytes);
    rounds_.publish();
    copy_bytes(all.data() + rank() * mine.size() + done, mine.data() + done, bytes);
    for (uint32_t i = 1; i < size(); ++i) {
      const uint32_t r = (rank() + i) % size();
      Outbox& theirs = await(r, call);
      if (theirs.total != mine.size()) {
        rounds_.fail(
            other_size_text(known(r), theirs.total, known(rank()), mine.size(), call_name(call)));
      }
      copy_bytes(all.data() + r * mine.size() + done, rounds_.layout().data(theirs), bytes);
    }
    done += bytes;
  } while (done < mine.size());
}

// The others go on without a look at each other, so that of a node's ranks each sleeps once, not
// once for each of them. Then the round behind this one is begun by a broadcast of `to`, which
// brings that all are through with the round before this one; or all are waited for first.
void SharedMemory::gather_to(uint32_t to, ConstBytes mine, Bytes all) {
  if (rank() == to) {
    check_allgather(size(), mine, all);
  }
  uint64_t done = 0;
  do {
    const uint64_t bytes = std::min(mine.size() - done, kOutboxDataBytes);
    Outbox& own = begin(Call::kAllgather);
    own.total = mine.size();
    copy_bytes(rounds_.layout().data(own), mine.data() + done, bytes);
    rounds_.publish();
    for (uint32_t r = 0; r < size() && rank() == to; ++r) {
      Outbox& theirs = await(r, Call::kAllgather);
      check_total(r, theirs, mine.size());
      copy_bytes(all.data() + r * mine.size() + done, rounds_.layout().data(theirs), bytes);
    }
    is_unsettled_ = true;
    gathered_to_ = to;
    done += bytes;
  } while (done < mine.size());
}

// A rank fills nothing, and reads the round of `from` before it stores that round itself. So what
// it filled in the round before has been read by all whom that concerned: by `to` of a gather; of
// another call only by those that have stored this round, which the next call waits for.
void SharedMemory::broadcast(uint32_t from, Bytes bytes) {
  if (is_unsettled_ && gathered_to_ != from) {
    settle();
  }
  const bool has_gathered = is_unsettled_;
  uint64_t done = 0;
  do {
    const uint64_t now = std::min(bytes.size() - done, kOutboxDataBytes);
    if (rank() == from) {
      for (uint32_t r = 0; r < size() && done > 0; ++r) {
        rounds_.await(r);
      }
      Outbox& own = rounds_.begin(Call::kAllgather);
      own.total = bytes.size();
      copy_bytes(rounds_.layout().data(own), bytes.data() + done, now);
    } else {
      Outbox& theirs = rounds_.await_next(from);
      check_call(from, theirs, Call::kAllgather);
      check_total(from, theirs, bytes.size());
      copy_bytes(bytes.data() + done, rounds_.layout().data(theirs), now);
      rounds_.begin(Call::kAllgather);
    }
    rounds_.publish();
    done += now;
  } while (done < bytes.size());
  is_unsettled_ = !has_gathered;
  gathered_to_ = kNobody;
}

void SharedMemory::settle() {
  for (uint32_t r = 0; r < size(); ++r) {
    rounds_.await(r);
  }
  is_unsettled_ = false;
}

Outbox& SharedMemory::begin(Call call) {
  if (is_unsettled_) {
    settle();
  }
  return rounds_.begin(call);
}

std::span<const ConstBytes> SharedMemory::exchange(std::span<const ConstBytes> to,
                                                   std::span<const uint64_t> sizes) {
  check_exchange(rank(), size(), to, sizes);
  return pass(to, sizes);
}

std::span<const ConstBytes> SharedMemory::exchange_sparse(std::span<const ConstBytes> to,
                                                          std::span<const uint8_t> from) {
  check_sparse(rank(), size(), to, from);
  return pass(to, some_sizes(rank(), to, from));
}

std::span<const ConstBytes> SharedMemory::pass(std::span<const ConstBytes> to,
                                               std::span<const uint64_t> sizes) {
  inbox_.begin(sizes);
  std::ranges::fill(sent_, 0);
  sent_[rank()] = to[rank()].size();
  bool more = false;
  do {
    pack(to, sizes);
    rounds_.publish();
    more = false;
    for (uint32_t i = 0; i < size(); ++i) {
      more |= unpack((rank() + i) % size(), to, sizes);
    }
  } while (more);
  return inbox_.all(rank(), to[rank()]);
}

// Each rank that is to receive more gets an equal part of the room that those before it left.
void SharedMemory::pack(std::span<const ConstBytes> to, std::span<const uint64_t> sizes) {
  Outbox& own = begin(Call::kExchange);
  own.more = 0;
  Entry* entries = rounds_.layout().entries(own);
  std::byte* data = rounds_.layout().data(own);
  uint64_t receivers = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    receivers += sent_[r] < to[r].size() ? 1 : 0;
  }
  uint64_t offset = 0;
  for (uint32_t r = 0; r < size(); ++r) {
    Entry& entry = entries[r];
    entry = {to[r].size(), sizes.empty() ? kUnknown : sizes[r], offset, 0};
    if (sent_[r] == to[r].size()) {
      continue;
    }
    const uint64_t room = (kOutboxDataBytes - offset) / receivers / kAlignment * kAlignment;
    entry.bytes = std::min(to[r].size() - sent_[r], room);
    copy_bytes(data + offset, to[r].data() + sent_[r], entry.bytes);
    sent_[r] += entry.bytes;
    own.more |= sent_[r] < to[r].size();
    offset += (entry.bytes + kAlignment - 1) / kAlignment * kAlignment;
    --receivers;
  }
}

// Whether rank r needs another round.
bool SharedMemory::unpack(uint32_t r, std::span<const ConstBytes> to,
                          std::span<const uint64_t> sizes) {
  Outbox& theirs = await(r, Call::kExchange);
  if (r == rank()) {
    return theirs.more != 0;
  }
  const Entry entry = rounds_.layout().entries(theirs)[rank()];  // read once: it is another's
  if (!is_expected(sizes, r, entry.total)) {
    rounds_.fail(other_size_text(known(r), entry.total, known(rank()), sizes[r], "exchange"));
  }
  if (entry.expected != kUnknown && !is_expected({&entry.expected, 1}, 0, to[r].size())) {
    rounds_.fail(
        other_size_text(known(rank()), to[r].size(), known(r), entry.expected, "exchange"));
  }
  // By the word of another process, which may be of another build.
  const uint64_t left = entry.total - std::min(entry.total, inbox_.bytes_of(r));
  if (entry.bytes > left || entry.bytes > kOutboxDataBytes ||
      entry.offset > kOutboxDataBytes - entry.bytes) {
    rounds_.fail(base::cat("[transport] rank ", known(r), " sends rank ", known(rank()), " ",
                           entry.bytes, " bytes from place ", entry.offset, " of its outbox of ",
                           kOutboxDataBytes, ", and rank ", known(rank()), " expects ", left,
                           ": ranks of one group must run the same build"));
  }
  inbox_.add(r, rounds_.layout().data(theirs) + entry.offset, entry.bytes);
  if (theirs.more == 0 && inbox_.bytes_of(r) != entry.total) {
    rounds_.fail(
        other_size_text(known(r), inbox_.bytes_of(r), known(rank()), entry.total, "exchange"));
  }
  return theirs.more != 0;
}

// The name is not needed once all are there, nor if they do not come.
std::unique_ptr<Transport> join(const std::shared_ptr<memory::Region>& region, uint32_t rank,
                                uint32_t size, double timeout_s, std::shared_ptr<Failure> failure,
                                std::vector<uint32_t> known_as) {
  try {
    auto transport = std::make_unique<SharedMemory>(region, rank, size, timeout_s,
                                                    std::move(failure), std::move(known_as));
    region->hide_name();
    return transport;
  } catch (...) {
    region->hide_name();
    throw;
  }
}

std::unique_ptr<Transport> SharedMemory::duplicate() {
  // Rank 0 makes the region first, so that the others find it; none of them if that fails.
  std::array<char, 64> name{};
  std::shared_ptr<memory::Region> region;
  std::string why;
  if (rank() == 0) {
    const std::string fresh = memory::made_up_name();
    try {
      region = make_shared_memory_region(fresh, size());
      std::ranges::copy(fresh, name.begin());
    } catch (const base::OutOfMemory& error) {
      why = error.what();
    }
  }
  std::vector<std::byte> names(name.size() * size());
  gather(Call::kDuplicate, std::as_bytes(std::span(name)), names);
  std::memcpy(name.data(), names.data(), name.size());
  if (name[0] == '\0') {
    throw base::OutOfMemory(
        rank() == 0 ? why
                    : base::cat("[transport] rank ", known(0), " found no memory for a duplicate"));
  }
  if (rank() != 0) {
    region = attach(name.data(), known(0), timeout_s(), *rounds_.failure());
  }
  return join(region, rank(), size(), timeout_s(), rounds_.failure(), rounds_.known_as());
}

}  // namespace

uint64_t shared_memory_bytes(uint32_t size) { return SharedLayout(size).bytes(); }

std::shared_ptr<memory::Region> make_shared_memory_region(std::string_view name, uint32_t size) {
  check_size(size);
  return memory::SharedRegion::create(name, shared_memory_bytes(size), kLayoutHash);
}

std::unique_ptr<Transport> make_shared_memory(std::shared_ptr<memory::Region> region, uint32_t rank,
                                              uint32_t size, double timeout_s,
                                              std::shared_ptr<Failure> failure,
                                              std::vector<uint32_t> known_as) {
  check_membership(rank, size, timeout_s);
  check_known_as(known_as, size);
  return std::make_unique<SharedMemory>(std::move(region), rank, size, timeout_s,
                                        or_own(std::move(failure)), std::move(known_as));
}

std::unique_ptr<Transport> make_shared_memory(std::string_view name, uint32_t rank, uint32_t size,
                                              double timeout_s, std::shared_ptr<Failure> failure,
                                              std::vector<uint32_t> known_as) {
  check_membership(rank, size, timeout_s);
  check_known_as(known_as, size);
  failure = or_own(std::move(failure));
  const auto region = rank == 0
                          ? make_shared_memory_region(name, size)
                          : attach(name, known_as.empty() ? 0 : known_as[0], timeout_s, *failure);
  return join(region, rank, size, timeout_s, std::move(failure), std::move(known_as));
}

}  // namespace gear::transport

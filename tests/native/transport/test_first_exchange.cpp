// The first exchange of rows, for every transport that reads them, and for messages.
#include "transport/one_sided/first_exchange.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "transport/loopback.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/one_sided_kinds.h"
#include "transport/typed.h"

using namespace gear::testing;
using namespace gear::transport;

namespace {

constexpr double kLong = 200;  // a wait that takes so long fails its test

std::vector<uint32_t> next_ranks(uint32_t size) {
  std::vector<uint32_t> sources(size);
  for (uint32_t r = 0; r < size; ++r) {
    sources[r] = (r + 1) % size;
  }
  return sources;
}

// One of the transport's reads ends badly on rank 1.
class Faulty final : public Forwarding {
 public:
  enum class Fault { kOtherBytes, kNoRead };

  Faulty(Transport& inner, Fault fault) : Forwarding(inner), fault_(fault) {}

  std::string_view name() const noexcept override { return "faulty"; }
  std::span<const ConstBytes> exchange(std::span<const ConstBytes> to,
                                       std::span<const uint64_t> sizes) override {
    const std::span<const ConstBytes> arrived = inner_.exchange(to, sizes);
    arrived_.assign(arrived.begin(), arrived.end());
    for (ConstBytes& bytes : arrived_) {
      if (rank() == 1 && bytes.size() > 100'000) {
        other_.assign(bytes.begin(), bytes.end());
        other_[70'000] ^= std::byte{1};
        bytes = other_;
      }
    }
    return arrived_;
  }
  std::unique_ptr<RemoteMemory> expose(Bytes) override {
    return fault_ == Fault::kNoRead ? std::make_unique<Memory>() : nullptr;
  }

 private:
  struct Reader final : RemoteReader {
    explicit Reader(uint32_t rank) : rank(rank) {}
    ConstBytes read(std::span<const RemoteRead>, uint64_t bytes) override {
      if (rank == 1) {
        throw gear::base::TransportError("[transport] reading from rank 2: the link is down");
      }
      landed.resize(bytes);
      return landed;
    }
    uint32_t rank;
    std::vector<std::byte> landed;
  };
  struct Memory final : RemoteMemory {
    std::unique_ptr<RemoteReader> connect(Transport& control, std::span<const uint8_t>) override {
      return std::make_unique<Reader>(control.rank());
    }
    void renew(Bytes) override { throw std::logic_error("a first exchange has one pool"); }
  };

  Fault fault_;
  std::vector<ConstBytes> arrived_;
  std::vector<std::byte> other_;
};

void check_all_alike(const std::vector<std::string>& errors, const std::string& text) {
  for (const std::string& error : errors) {
    CHECK(error == text);
  }
}

}  // namespace

TEST_CASE("first exchange: all ranks come to one figure, by messages and by reads") {
  std::vector<Ranks> kinds;
  kinds.push_back(make_loopback(3, kLong));
  for (const OneSidedKind& kind : kOneSidedKinds) {
    kinds.push_back(kind.make(3, kLong, {}));
  }
  for (Ranks& ranks : kinds) {
    const auto errors = errors_of(ranks, [](Transport& transport) {
      const double rate = first_exchange(transport, next_ranks(3), kLong / 2);
      const std::string name(transport.name());
      expect(rate > 0, (name + ": no rate").c_str());
      expect(allgather(transport, rate) == std::vector<double>(3, rate),
             (name + ": more than one figure").c_str());
    });
    check_all_alike(errors, "");
  }
}

TEST_CASE("first exchange: a read that fails on one rank is named on all, and messages go on") {
  Ranks ranks = make_loopback(3, kLong);
  const auto errors = errors_of(ranks, [&](Transport& messages) {
    Faulty transport(messages, Faulty::Fault::kNoRead);
    std::string said;
    try {
      first_exchange(transport, next_ranks(3), kLong / 2);
    } catch (const gear::base::TransportError& error) {
      said = error.what();
    }
    expect(allgather(messages, messages.rank())[2] == 2, "the messages are of no use");
    throw gear::base::TransportError(said);
  });
  check_all_alike(errors, "[transport] faulty: rank 1: reading from rank 2: the link is down");
}

TEST_CASE("first exchange: rows that came wrong are named") {
  Ranks ranks = make_loopback(2, kLong);
  const auto errors = errors_of(ranks, [&](Transport& messages) {
    Faulty transport(messages, Faulty::Fault::kOtherBytes);
    first_exchange(transport, next_ranks(2), kLong / 2);
  });
  check_all_alike(errors,
                  "[transport] faulty: rank 1: row 68 of 1024 bytes of rank 0 came with other "
                  "bytes than its owner has");
}

TEST_CASE("first exchange: sources that fit no ranks are refused") {
  Ranks ranks = make_loopback(2, kLong);
  CHECK_THROWS_WITH_AS(first_exchange(*ranks[0], std::vector<uint32_t>{1}, 1),
                       "[transport] first exchange: 1 sources for 2 ranks: one of each is allowed",
                       gear::base::InvalidArgument);
  CHECK_THROWS_WITH_AS(first_exchange(*ranks[0], std::vector<uint32_t>{0, 0}, 1),
                       "[transport] first exchange: rank 0 of 2 gets rows of rank 0: another rank "
                       "is allowed",
                       gear::base::InvalidArgument);
  CHECK_THROWS_AS(first_exchange(*ranks[0], std::vector<uint32_t>{1, 2}, 1),
                  gear::base::InvalidArgument);
}

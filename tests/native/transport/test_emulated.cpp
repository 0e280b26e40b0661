// What a decorated transport counts and holds: the figures are closed forms, the clock is a fake.
// That it is a transport like others, test_transport.cpp says.
#include "transport/emulated.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ranks.h"
#include "transport/loopback.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/one_sided_kinds.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::base::Curve;

namespace {

constexpr double kLong = 200;

// Powers of two, so that sums of them are exact.
constexpr double kEach = 1.0 / (1 << 18);  // seconds a byte

double line(double call_s, uint64_t bytes) { return call_s + static_cast<double>(bytes) * kEach; }

constexpr double kGather = 4;
constexpr double kAmongAll = 3;
constexpr double kSend = 2;

Curve curve(double call_s, int basis) {
  return {{0, 1 << 20}, {call_s, line(call_s, 1 << 20)}, {basis, basis}};
}

// One rank's: what it counts, and what it would have waited.
struct Watched {
  std::shared_ptr<Traffic> traffic = std::make_shared<Traffic>();
  std::vector<double> held;
};

std::unique_ptr<Transport> emulated(std::unique_ptr<Transport> inner, Watched& watched) {
  constexpr int kGiven = 1;
  constexpr int kPublished = 3;
  EmulatedOptions options{
      {curve(kGather, Curve::kMeasured), curve(kAmongAll, kGiven), curve(kSend, kPublished)},
      watched.traffic,
      [&watched](Transport&, double seconds) { watched.held.push_back(seconds); }};
  return make_emulated(std::move(inner), std::move(options));
}

Ranks emulated(Ranks inner, std::vector<Watched>& watched) {
  watched = std::vector<Watched>(inner.size());
  Ranks ranks;
  for (size_t r = 0; r < inner.size(); ++r) {
    ranks.push_back(emulated(std::move(inner[r]), watched[r]));
  }
  return ranks;
}

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

void check(const Watched& watched, Counted call, uint64_t calls, uint64_t messages, uint64_t bytes,
           const std::array<double, Curve::kNumBases>& seconds) {
  const Tally tally = watched.traffic->of(call);
  CHECK(tally.calls == calls);
  CHECK(tally.messages == messages);
  CHECK(tally.bytes == bytes);
  for (size_t basis = 0; basis < seconds.size(); ++basis) {
    CAPTURE(basis);
    CHECK(tally.seconds[basis] == seconds[basis]);
  }
}

// bytes_of(from, to)
template <class BytesOf>
void exchange(Transport& transport, const BytesOf& bytes_of, bool known) {
  std::vector<std::vector<std::byte>> sent;
  std::vector<uint64_t> sizes;
  for (uint32_t r = 0; r < transport.size(); ++r) {
    sent.emplace_back(bytes_of(transport.rank(), r));
    sizes.push_back(bytes_of(r, transport.rank()));
  }
  const std::vector<ConstBytes> to(sent.begin(), sent.end());
  if (known) {
    transport.exchange(to, sizes);
  } else {
    transport.exchange(to);
  }
}

}  // namespace

TEST_CASE("emulated: an allgather takes an all_gather, or its messages, whichever is less") {
  // To 1, 2, 4, .. others, what a rank has by then: all of it together is what the others have.
  const auto check_one = [](uint32_t size, uint64_t messages, double small, size_t basis) {
    CAPTURE(size);
    std::vector<Watched> watched;
    Ranks ranks = emulated(make_loopback(size, kLong), watched);
    none(errors_of(ranks, [&](Transport& transport) {
      const std::vector<std::byte> mine(24);
      std::vector<std::byte> all(24 * size);
      transport.allgather(mine, all);
    }));
    for (const Watched& one : watched) {
      std::array<double, Curve::kNumBases> seconds{};
      seconds[basis] = small;
      check(one, Counted::kAllgather, 1, messages, 24 * (size - 1), seconds);
      CHECK(one.held == (small > 0 ? std::vector{small} : std::vector<double>{}));
    }
  };
  check_one(1, 0, 0, 0);
  check_one(2, 1, line(kSend, 24), 3);
  check_one(4, 2, 2 * kSend + 72 * kEach, 3);  // as one, but for the bytes that a rank has itself
  check_one(5, 3, line(kGather, 5 * 24), 2);
  check_one(9, 4, line(kGather, 9 * 24), 2);
}

TEST_CASE("emulated: an exchange takes an all_to_all, or its messages, whichever is less") {
  std::vector<Watched> watched;
  Ranks ranks = emulated(make_loopback(3, kLong), watched);
  none(errors_of(ranks, [](Transport& transport) {
    // Of unknown sizes: one to each, also of nothing, and all in all less than two sends.
    exchange(transport, [](uint64_t from, uint64_t to) { return to == 2 ? from * 100 : 0; }, false);
  }));
  // What a rank keeps of an all_to_all among three is half of what it gives; rank 2 gets 100.
  for (const auto& [rank, given, most] :
       {std::tuple{0U, 0U, 0U}, std::tuple{1U, 100U, 100U}, std::tuple{2U, 0U, 100U}}) {
    CAPTURE(rank);
    const double seconds = line(kAmongAll, most + most / 2);
    check(watched[rank], Counted::kExchange, 1, 2, given, {0, seconds});
    CHECK(watched[rank].held == std::vector{seconds});
  }

  ranks = emulated(make_loopback(3, kLong), watched);
  none(errors_of(ranks, [](Transport& transport) {
    const auto from_0_to_1 = [](uint64_t from, uint64_t to) {
      return from == 0 && to == 1 ? 1000 : from == to ? 5000 : 0;
    };
    exchange(transport, from_0_to_1, true);
  }));
  const double sent = line(kSend, 1000);
  check(watched[0], Counted::kExchange, 1, 1, 1000, {0, 0, 0, sent});
  check(watched[1], Counted::kExchange, 1, 0, 0, {0, 0, 0, sent});
  check(watched[2], Counted::kExchange, 1, 0, 0, {});
  CHECK(watched[0].held == std::vector{sent});
  CHECK(watched[2].held.empty());

  // Of two ranks each has no other one.
  ranks = emulated(make_loopback(2, kLong), watched);
  none(errors_of(ranks, [](Transport& transport) {
    exchange(transport, [](uint64_t from, uint64_t to) { return from < to ? 8 : 0; }, true);
  }));
  check(watched[0], Counted::kExchange, 1, 1, 8, {0, line(kAmongAll, 16)});
  check(watched[1], Counted::kExchange, 1, 0, 0, {0, line(kAmongAll, 16)});
}

TEST_CASE("emulated: duplicates count with it, and what several share is the sum") {
  Watched all;
  Ranks ranks;
  for (auto& inner : make_loopback(4, kLong)) {
    EmulatedOptions options{{curve(kGather, 1), {}, curve(kGather, 1)}, all.traffic};
    ranks.push_back(make_emulated(std::move(inner), std::move(options)));
  }
  none(errors_of(ranks, [](Transport& transport) {
    const std::unique_ptr<Transport> twin = transport.duplicate();
    expect(twin->name() == "emulated", "a duplicate of another kind");
    const std::vector<std::byte> mine(8);
    std::vector<std::byte> gathered(32);
    twin->allgather(mine, gathered);
    exchange(*twin->duplicate(), [](uint64_t, uint64_t) { return 1; }, false);
  }));
  check(all, Counted::kDuplicate, 8, 0, 0, {});
  check(all, Counted::kAllgather, 4, 8, 96, {0, 4 * line(kGather, 32)});
  check(all, Counted::kExchange, 4, 12, 12, {});  // by no curve
}

TEST_CASE("emulated: reads take bytes of their owners, a message each") {
  for (const OneSidedKind& kind : kOneSidedKinds) {
    if (num_machines > 1) {
      continue;
    }
    CAPTURE(kind.name);
    std::vector<Watched> watched;
    Ranks ranks = emulated(kind.make(3, kLong, {}), watched);
    none(errors_of(ranks, [](Transport& transport) {
      std::vector<std::byte> mine(4096, static_cast<std::byte>(transport.rank() + 1));
      const auto memory = transport.expose(mine);
      const auto reader = memory->connect(transport);
      if (transport.rank() == 0) {
        const std::vector<RemoteRead> reads = {{1, 0, 100, 0}, {1, 200, 50, 100}, {2, 8, 250, 150}};
        const ConstBytes came = reader->read(reads, 400);
        expect(came[149] == std::byte{2} && came[150] == std::byte{3}, "other bytes were read");
        reader->read(std::span(reads).first(2), 150);
      }
      const std::vector<std::byte> one(1);
      std::vector<std::byte> all(3);
      transport.allgather(one, all);
    }));
    check(watched[0], Counted::kRead, 2, 3, 550, {0, line(kAmongAll, 600), 0, line(kSend, 150)});
    CHECK(std::ranges::count(watched[0].held, line(kSend, 150)) == 1);  // beside connecting
    check(watched[1], Counted::kRead, 0, 0, 0, {});
  }
  Ranks alone = make_loopback(1, kLong);
  Watched watched;
  CHECK(emulated(std::move(alone[0]), watched)->expose({}) == nullptr);
}

TEST_CASE("emulated: a hold ends by itself, and with the group") {
  const auto failure = std::make_shared<Failure>();
  const Ranks ranks = make_loopback(1, kLong, {failure});
  wait_out(*ranks[0], 0);
  wait_out(*ranks[0], 1e-4);
  failure->tell("[transport] rank 7 has ended");
  CHECK_THROWS_WITH_AS(wait_out(*ranks[0], 1e6), "[transport] rank 7 has ended",
                       gear::base::TransportError);
}

#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "memory/region.h"
#include "memory/shared/shared_header.h"
#include "ranks.h"
#include "transport/emulated.h"
#include "transport/loopback.h"
#include "transport/one_sided_kinds.h"
#include "transport/shared/shared_memory.h"
#if GEAR_FABRIC
#include "transport/fabric/message_threads.h"
#endif

// The contract of transport.h, for every transport whose ranks can be threads of one process.

using namespace gear::transport;
using gear::testing::errors_here;
using gear::testing::errors_of;
using gear::testing::expect;
using gear::testing::Ranks;

namespace {

template <class Make>
Ranks make_in_threads(uint32_t size, const Make& make) {
  Ranks ranks(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r] { ranks[r] = make(r); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return ranks;
}

struct Kind {
  const char* name;
  Ranks (*make)(uint32_t size, double timeout_s);
  std::vector<uint32_t> sizes;
  bool tells_later = true;  // who comes later hears of ranks that have left or failed
};

// Every rank has a mapping of its own, as if it were a process.
Ranks make_shared_by_name(uint32_t size, double timeout_s) {
  static std::atomic<int> number{0};
  const std::string name = gear::base::cat("test-transport-", ::getpid(), "-", number++);
  Ranks ranks = make_in_threads(
      size, [&](uint32_t r) { return make_shared_memory(name, r, size, timeout_s); });
  CHECK(::access(("/dev/shm" + gear::memory::shared_object_name(name)).c_str(), F_OK) != 0);
  return ranks;
}

// One mapping for all, so that ThreadSanitizer sees who writes what the others read.
Ranks make_shared_in_common(uint32_t size, double timeout_s) {
  const std::shared_ptr<gear::memory::Region> region =
      gear::memory::make_region(gear::memory::Tier::kHost, shared_memory_bytes(size));
  return make_in_threads(
      size, [&](uint32_t r) { return make_shared_memory(region, r, size, timeout_s); });
}

Ranks make_in_loopback(uint32_t size, double timeout_s) { return make_loopback(size, timeout_s); }

Ranks make_emulated_loopback(uint32_t size, double timeout_s) {
  Ranks ranks;
  for (auto& inner : make_loopback(size, timeout_s)) {
    ranks.push_back(make_emulated(std::move(inner), {{}, std::make_shared<Traffic>()}));
  }
  return ranks;
}

#if GEAR_FABRIC
Ranks make_by_varied_nodes(uint32_t size, double timeout_s) {
  return gear::testing::make_by_nodes(gear::testing::varied_nodes(size), timeout_s);
}
#endif

template <size_t Number>
Ranks make_one_sided(uint32_t size, double timeout_s) {
  return gear::testing::kOneSidedKinds[Number].make(size, timeout_s, {});
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kinds = [] {
    std::vector<Kind> made;
#if GEAR_VERBS
    const bool apart = gear::testing::num_machines > 1;
    made.push_back({"verbs", make_one_sided<0>,
                    apart ? std::vector<uint32_t>{2, 3} : std::vector<uint32_t>{1, 2, 3, 4}});
#endif
    if (!gear::testing::on_a_device()) {  // these need none, or send what verbs does
#if GEAR_FABRIC
      made.push_back({"fabric", make_one_sided<GEAR_VERBS>, {1, 2, 3, 4}});
      if (gear::testing::libfabric_is_here()) {
        made.push_back(
            {"libfabric", gear::testing::make_messages_by_libfabric, {1, 2, 3, 4, 7}, false});
        made.push_back({"by_node", make_by_varied_nodes, {1, 2, 3, 4, 7}});
      }
#endif
      made.push_back({"loopback", make_in_loopback, {1, 2, 3, 4, 64}});
      made.push_back({"emulated", make_emulated_loopback, {1, 2, 3, 4}});
      made.push_back({"shared_memory", make_shared_by_name, {1, 2, 3, 4}});
      made.push_back({"shared_memory", make_shared_in_common, {1, 2, 3, 4, 16}});
    }
    return made;
  }();
  return kinds;
}

// Enough for sanitizers on a busy machine; only what waits for nobody takes that long.
constexpr double kLong = 200;  // a wait that takes so long fails its test
constexpr double kSoon = 10;   // in which all come that come, one after the other

std::vector<std::byte> content(uint64_t sender, uint64_t receiver, size_t bytes) {
  std::vector<std::byte> out(bytes);
  // In blocks of no power of two, so that a wrong offset shows.
  constexpr size_t kBlock = 509;
  for (size_t i = 0; i < bytes; i += kBlock) {
    const auto value = static_cast<int>(sender * 31 + receiver * 7 + i / kBlock * 13 + i % 251);
    std::memset(out.data() + i, value, std::min(kBlock, bytes - i));
  }
  for (size_t i = 0; i < std::min<size_t>(bytes, 64); ++i) {
    out[i] = static_cast<std::byte>(sender * 31 + receiver * 7 + i * 13);
  }
  return out;
}

// Not byte by byte, which sanitizers take their time for.
bool same(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

void gather_once(Transport& transport, uint64_t round, size_t bytes) {
  std::vector<std::byte> all(bytes * transport.size(), std::byte{0xee});
  transport.allgather(content(transport.rank(), round, bytes), all);
  for (uint32_t r = 0; r < transport.size(); ++r) {
    const std::vector<std::byte> want = content(r, round, bytes);
    expect(same(std::span(all).subspan(r * bytes, bytes), want), "allgather delivered other bytes");
  }
}

// bytes_of(sender, receiver)
template <class BytesOf>
void exchange_once(Transport& transport, const BytesOf& bytes_of, bool unknown = true) {
  const uint32_t own = transport.rank();
  std::vector<std::vector<std::byte>> sent;
  std::vector<uint64_t> sizes;
  for (uint32_t r = 0; r < transport.size(); ++r) {
    sent.push_back(content(own, r, bytes_of(own, r)));
    sizes.push_back(bytes_of(r, own));
  }
  const std::vector<ConstBytes> to(sent.begin(), sent.end());
  const auto came = [&](std::span<const ConstBytes> arrived) {
    expect(arrived.size() == sizes.size() && arrived[own].data() == to[own].data(),
           "exchange copies what stays");
    for (uint32_t r = 0; r < transport.size(); ++r) {
      expect(same(arrived[r], content(r, own, sizes[r])), "exchange delivered other bytes");
      expect(r == own || reinterpret_cast<uintptr_t>(arrived[r].data()) % 16 == 0,
             "exchange delivers at odd places");
    }
  };
  came(transport.exchange(to, sizes));
  std::vector<uint8_t> from;
  for (const uint64_t bytes : sizes) {
    from.push_back(bytes > 0 ? 1 : 0);
  }
  came(transport.exchange_sparse(to, from));
  if (unknown) {
    const std::span<const ConstBytes> arrived = transport.exchange(to);
    gather_once(transport, 5, 100);  // nothing but an exchange ends what came
    came(arrived);
  }
}

template <class Test>
void for_every(const Test& test, uint32_t at_least = 1) {
  for (const Kind& kind : kinds()) {
    for (const uint32_t size : kind.sizes) {
      if (size >= at_least) {
        CAPTURE(kind.name);
        CAPTURE(size);
        test(kind, size);
      }
    }
  }
}

// What waits for a deadline does so beside the others, but for machines, which exchange one by one.
template <class Test>
void at_once(const std::vector<std::pair<const Kind*, uint32_t>>& cases, const Test& test) {
  std::vector<std::thread> threads;
  for (const auto& [kind, size] : cases) {
    threads.emplace_back([&test, kind = kind, size = size] {
      CAPTURE(kind->name);
      CAPTURE(size);
      CHECK_NOTHROW(test(*kind, size));
    });
    if (gear::testing::on_a_device()) {
      threads.back().join();
      threads.pop_back();
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("transport: ranks know who they are") {
  for_every([](const Kind& kind, uint32_t size) {
    const Ranks ranks = kind.make(size, 2.5);
    REQUIRE(ranks.size() == size);
    for (uint32_t r = 0; r < size; ++r) {
      if (!ranks[r]) {
        continue;
      }
      CHECK(ranks[r]->name() ==
            (std::string_view(kind.name) == "by_node" ? "libfabric" : kind.name));
      CHECK(ranks[r]->rank() == r);
      CHECK(ranks[r]->size() == size);
      CHECK(ranks[r]->timeout_s() == 2.5);
    }
  });
}

TEST_CASE("transport: allgather gives every rank the bytes of all, call after call") {
  for_every([](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kLong);
    none(errors_of(ranks, [&](Transport& transport) {
      for (uint64_t round = 0; round < (size > 4 ? 5 : 300); ++round) {
        gather_once(transport, round, 32);
      }
      for (const size_t bytes : {0, 1, 7, 63, 64, 65, 4096, 5000}) {
        gather_once(transport, bytes, bytes);
      }
      if (size <= 4) {
        gather_once(transport, 3, 600'001);
      }
    }));
  });
}

TEST_CASE("transport: exchange moves entries of any size, none and large ones too") {
  for_every([](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kLong);
    none(errors_of(ranks, [&](Transport& transport) {
      exchange_once(transport, [](uint64_t, uint64_t) { return 0; });
      exchange_once(transport, [](uint64_t s, uint64_t r) { return s * 100 + r; });
      exchange_once(transport, [](uint64_t s, uint64_t r) { return s < r ? 5000 : 0; });
      if (size <= 4) {
        // More than any buffer in between holds.
        const uint64_t large = uint64_t{size == 2 ? 8u : 1u} << 20;
        exchange_once(transport, [&](uint64_t s, uint64_t r) { return large - s * 3 - r; });
        exchange_once(transport,
                      [&](uint64_t s, uint64_t r) { return s == 0 && r == 1 ? large : 1; });
      }
      for (uint64_t round = 0; round < (size > 4 ? 3 : 100); ++round) {
        exchange_once(transport,
                      [&](uint64_t s, uint64_t r) { return (s * 37 + r * 11 + round * 53) % 700; });
        gather_once(transport, round, round);
      }
    }));
  });
}

TEST_CASE("transport: some ranks gather, or all to one, and one tells all") {
  for_every([](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kLong);
    none(errors_of(ranks, [&](Transport& transport) {
      const uint32_t own = transport.rank();
      for (const size_t bytes : {0, 24, 5000, 150'000}) {
        if (size * bytes > 600'000) {
          continue;
        }
        std::vector<uint32_t> every_second;
        for (uint32_t r = 0; r < size; r += 2) {
          every_second.push_back(r);
        }
        std::vector<std::byte> all(own % 2 == 0 ? every_second.size() * bytes : 0);
        transport.allgather_among(
            every_second, own % 2 == 0 ? content(own, 1, bytes) : std::vector<std::byte>(), all);
        for (size_t i = 0; own % 2 == 0 && i < every_second.size(); ++i) {
          expect(same(std::span(all).subspan(i * bytes, bytes), content(every_second[i], 1, bytes)),
                 "other bytes of some");
        }
        const uint32_t from = size - 1;
        for (uint32_t turn = 0; turn < 8; ++turn) {  // one behind the other, and each alone
          if (turn % 3 != 1) {
            std::vector<std::byte> theirs(own == from ? size * bytes : 0);
            transport.gather_to(from, content(own, turn, bytes), theirs);
            for (uint32_t r = 0; r < size && own == from; ++r) {
              expect(same(std::span(theirs).subspan(r * bytes, bytes), content(r, turn, bytes)),
                     "other bytes of all");
            }
          }
          const uint32_t teller = turn % 4 == 3 ? 0 : from;
          std::vector<std::byte> told =
              own == teller ? content(teller, turn, bytes) : std::vector<std::byte>(bytes);
          transport.broadcast(teller, told);
          expect(same(told, content(teller, turn, bytes)), "other bytes of one");
          if (turn % 4 == 2) {
            transport.broadcast(teller, told);
          } else if (turn % 4 == 3) {
            gather_once(transport, turn, bytes);
          }
        }
        std::vector<std::byte> told =
            own == from ? content(from, 2, bytes) : std::vector<std::byte>(bytes);
        transport.broadcast(from, told);
        expect(same(told, content(from, 2, bytes)), "other bytes of one");
        gather_once(transport, 3, 24);
      }
    }));
  });
}

TEST_CASE("transport: a duplicate's calls have no order with the original's") {
  for_every([](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kLong);
    none(errors_of(ranks, [&](Transport& transport) {
      const std::unique_ptr<Transport> second = transport.duplicate();
      expect(second->rank() == transport.rank() && second->size() == size &&
                 second->name() == transport.name() && second->timeout_s() == transport.timeout_s(),
             "the duplicate is another");
      const auto work = [size](Transport& used, uint64_t salt) {
        for (uint64_t round = 0; round < (size > 4 ? 3 : 100); ++round) {
          gather_once(used, round + salt, 16);
          exchange_once(used, [&](uint64_t s, uint64_t r) { return (s + r + round + salt) % 90; });
        }
      };
      std::string error;
      std::thread thread([&] {
        try {
          work(*second, 1000);
        } catch (const std::exception& caught) {
          error = caught.what();
        }
      });
      try {
        work(transport, 0);
      } catch (...) {
        thread.join();
        throw;
      }
      thread.join();
      expect(error.empty(), error.c_str());
      // A duplicate of a duplicate, while its own original is gone.
      gather_once(*second->duplicate(), 1, 8);
    }));
  });
}

TEST_CASE("transport: a rank that does not come in time is named by all others, for good") {
  std::vector<std::pair<const Kind*, uint32_t>> cases;
  for (const Kind& kind : kinds()) {
    for (const uint32_t size : kind.sizes) {
      if (size > 1) {
        cases.emplace_back(&kind, size);
      }
    }
  }
  at_once(cases, [](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kSoon);
    std::atomic<bool> over{false};
    const std::vector<std::string> errors = errors_of(ranks, [&](Transport& transport) {
      std::byte mine{};
      std::vector<std::byte> all(size);
      if (transport.rank() == 1) {
        while (!over) {
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
      }
      try {
        transport.allgather({&mine, 1}, all);
      } catch (const gear::base::TransportError&) {
        over = true;
        throw;
      }
    });
    for (uint32_t r = 0; r < size; ++r) {
      INFO(errors[r]);
      CHECK(((r == 1 && !kind.tells_later) ||
             contains(errors[r], "[transport] rank 1 did not take part in allgather within ")));
    }
    for (const std::string& error :
         errors_of(ranks, [](Transport& transport) { transport.allgather({}, {}); })) {
      CHECK(contains(error, "[transport] "));
    }
  });
}

TEST_CASE("transport: several late ranks are all named") {
  std::vector<std::pair<const Kind*, uint32_t>> cases;
  for (const Kind& kind : kinds()) {
    cases.emplace_back(&kind, 4);
  }
  at_once(cases, [](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kSoon);
    const std::vector<std::string> errors = errors_of(ranks, [](Transport& transport) {
      if (transport.rank() == 0 || transport.rank() == 2) {
        const std::vector<ConstBytes> to(4);
        transport.exchange(to);
      }
    });
    CHECK(contains(errors[0], "ranks 1 and 3 did not take part in exchange within 10 s"));
    CHECK(contains(errors[2], "ranks 1 and 3 did not take part in exchange within 10 s"));
  });
}

TEST_CASE("transport: a rank that has left is named at once") {
  for_every(
      [](const Kind& kind, uint32_t size) {
        if (!kind.tells_later) {
          return;
        }
        Ranks ranks = kind.make(size, kLong);
        ranks[1].reset();
        const std::vector<std::string> errors =
            errors_of(ranks, [](Transport& transport) { gather_once(transport, 1, 8); });
        for (uint32_t r = 0; r < size; ++r) {
          INFO(errors[r]);
          CHECK((!ranks[r] || contains(errors[r], "closed its loader or ended while others")));
        }
      },
      2);
}

TEST_CASE("transport: different calls on different ranks are refused on all") {
  for_every(
      [](const Kind& kind, uint32_t size) {
        Ranks calls = kind.make(size, kLong);
        for (const std::string& error : errors_here(calls, [](Transport& transport) {
               if (transport.rank() == 1) {
                 exchange_once(transport, [](uint64_t, uint64_t) { return 0; });
               } else {
                 gather_once(transport, 1, 8);
               }
             })) {
          INFO(error);
          CHECK(contains(error, "is in exchange"));
          CHECK(contains(error, "is in allgather"));
        }
        Ranks gathers = kind.make(size, kLong);
        for (const std::string& error : errors_here(gathers, [](Transport& transport) {
               gather_once(transport, 1, transport.rank() == 1 ? 9 : 8);
             })) {
          INFO(error);
          CHECK(contains(error, "both must know the same size"));
        }
        // Found by the two that it concerns; the others, at the next call at the latest.
        Ranks exchanges = kind.make(size, kLong);
        for (const std::string& error : errors_here(exchanges, [](Transport& transport) {
               const uint64_t own = transport.rank();
               const auto sizes = [&](uint64_t s, uint64_t r) {
                 return s == 0 && r == 1 && own == 1 ? 9 : 8;
               };
               exchange_once(transport, sizes, false);
               gather_once(transport, 1, 8);
             })) {
          CHECK(contains(error, "exchange: rank 0 gives 8 bytes, rank 1 expects 9"));
        }
      },
      2);
}

TEST_CASE("transport: what one rank alone got wrong is its own error, and costs nothing") {
  for_every([](const Kind& kind, uint32_t size) {
    Ranks ranks = kind.make(size, kLong);
    none(errors_of(ranks, [&](Transport& transport) {
      const auto refused = [&](const auto& call, const char* part) {
        try {
          call();
        } catch (const gear::base::InvalidArgument& error) {
          if (!contains(error.what(), part)) {
            throw;
          }
          return;
        }
        throw std::logic_error(gear::base::cat("not refused: ", part));
      };
      std::vector<std::byte> bytes(8 * size + 1);
      const Bytes all(bytes);
      refused([&] { transport.allgather(all.first(8), all); }, "allgather of 8 bytes a rank into");
      std::vector<ConstBytes> to(size);
      const std::vector<uint64_t> sizes(size + 1);
      refused([&] { transport.exchange({to.data(), size - 1}); }, "exchange with");
      refused([&] { transport.exchange(to, sizes); }, "exchange with");
      const std::vector<uint8_t> from(size + 1);
      refused([&] { transport.exchange_sparse(to, from); }, "exchange_sparse with");
      refused([&] { transport.exchange_sparse({to.data(), size - 1}, {from.data(), size}); },
              "exchange_sparse with");
      to[transport.rank()] = all.first(3);
      refused([&] { transport.exchange(to, {sizes.data(), size}); },
              "sends itself 3 bytes and expects 0");
      gather_once(transport, 1, 8);
    }));
  });
}

// By messages a rank that hears nothing waits; the others see at once who says what.
TEST_CASE("transport: a rank that sends nothing where some is to come is named") {
  for_every(
      [](const Kind& kind, uint32_t size) {
        const std::string name = kind.name;
        if (name != "loopback" && name != "emulated" && name != "shared_memory") {
          return;
        }
        Ranks ranks = kind.make(size, kLong);
        const auto errors = errors_of(ranks, [&](Transport& transport) {
          const std::vector<ConstBytes> to(size);
          std::vector<uint8_t> from(size);
          from[0] = transport.rank() == 1 ? 1 : 0;
          transport.exchange_sparse(to, from);
        });
        CHECK(contains(errors[1], "rank 0 gives 0 bytes, rank 1 expects some of it"));
      },
      2);
}

TEST_CASE("transport: groups that cannot be are refused") {
  CHECK_THROWS_WITH_AS(make_loopback(0, 1), doctest::Contains("0 ranks: 1 to 65536"),
                       gear::base::InvalidArgument);
  for (const double timeout_s : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    CHECK_THROWS_WITH_AS(make_loopback(2, timeout_s),
                         doctest::Contains("more than 0, at most 1e+08 s are allowed"),
                         gear::base::InvalidArgument);
  }
}

TEST_CASE("loopback: 512 ranks") {
  Ranks ranks = make_loopback(512, kLong);
  none(errors_of(ranks, [](Transport& transport) {
    gather_once(transport, 1, 8);
    exchange_once(transport, [](uint64_t s, uint64_t r) { return (s + r) % 16; });
    gather_once(transport, 2, 8);
  }));
}

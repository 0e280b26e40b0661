// What a device and its operator can get wrong, and how it is said: with a fake device.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/threads/interrupt.h"
#include "scoped_variable.h"
#include "transport/failure.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/verbs/fake_verbs.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/verbs_ranks.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::base::TransportError;
using gear::transport::verbs::VerbsLibrary;

const VerbsLibrary& gear::testing::verbs_under_test() { return FakeVerbs::library(); }
bool gear::testing::verbs_are_real() { return false; }

namespace {

struct Fresh {
  Fresh() { FakeVerbs::reset(); }
  ~Fresh() { FakeVerbs::reset(); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
};

thread_local uint32_t t_rank = 0;

struct Interrupt {};
thread_local bool t_interrupted = false;

void interrupt() {
  if (t_interrupted) {
    throw Interrupt();
  }
}

// Opens the transport on two ranks, `find` being asked by each with its number in t_rank; what
// each of them throws.
std::vector<std::string> errors_of_opening(const VerbsLibrary& (*find)()) {
  Ranks messages = make_loopback(2, 200);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      t_rank = r;
      try {
        static_cast<void>(verbs::open_verbs(std::move(messages[r]), {}, find));
      } catch (const TransportError& error) {
        errors[r] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

void check_both(const std::vector<std::string>& errors, const std::string& part) {
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(error.starts_with("[transport] verbs: rank "));
    CHECK(error.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("verbs faults: a rank that cannot open a device is named by all, with its reason") {
  const Fresh fresh;
  const auto errors = errors_of_opening([]() -> const VerbsLibrary& {
    if (t_rank == 1) {
      throw TransportError("[transport] libibverbs cannot be loaded: no such file");
    }
    return FakeVerbs::library();
  });
  check_both(errors, "verbs: rank 1: libibverbs cannot be loaded: no such file");
  FakeVerbs::settings.num_devices = 0;
  const auto without = errors_of_opening(verbs_under_test);
  check_both(without, "rank 0: no RDMA device was found: ibv_devinfo");
  check_both(without, "; rank 1: no RDMA device was found: ibv_devinfo");
}

TEST_CASE("verbs faults: a port, address or partition that is not there is named") {
  const Fresh fresh;
  FakeVerbs::settings.num_devices = 2;
  const auto said = [](const char* variable, const char* value, const char* part) {
    const ScopedVariable set(variable, value);
    check_both(errors_of_opening(verbs_under_test), part);
  };
  said("GEAR_VERBS_DEVICE", "mlx5_0",
       "GEAR_VERBS_DEVICE='mlx5_0' is no RDMA device or port here: there are fake0, fake1");
  said("GEAR_VERBS_DEVICE", "fake1:3",
       "GEAR_VERBS_DEVICE='fake1:3' is no RDMA device or port here");
  said("GEAR_VERBS_DEVICE", "fake1:1",
       "no RDMA port can be used: fake1 port 1 is not active: see ibv_devinfo");
  said("GEAR_VERBS_DEVICE", "fake1:x", "set a device's name, or name:port, as mlx5_0:1");
  said("GEAR_VERBS_GID", "9",
       "GEAR_VERBS_GID=9: fake0 port 2 has no such address; it has 0 fe80::1, 1 fe80::1, 2 "
       "::ffff:10.0.0.1");
  said("GEAR_VERBS_GID", "x", "GEAR_VERBS_GID='x' is not accepted: set an integer from 0");
  said("GEAR_VERBS_PKEY", "9", "GEAR_VERBS_PKEY=9: fake0 port 2 is in no such partition");
  FakeVerbs::settings.has_gids = false;
  check_both(errors_of_opening(verbs_under_test),
             "fake0 port 2 has no GID: give its network interface an address");
  FakeVerbs::settings.active = false;
  check_both(errors_of_opening(verbs_under_test),
             "no RDMA port can be used: fake0 port 1 is not active, fake0 port 2 is not active, ");
}

TEST_CASE("verbs faults: the best address and partition are taken, or those asked for") {
  const Fresh fresh;
  const auto text = [] {
    return verbs::VerbsPort(FakeVerbs::library(), verbs::port_choice()).text();
  };
  CHECK(text() == "fake0 port 2, RoCE, GID 2 ::ffff:10.0.0.1, MTU 4096");
  const ScopedVariable gid("GEAR_VERBS_GID", "1");
  CHECK(text() == "fake0 port 2, RoCE, GID 1 fe80::1, MTU 4096");
  const ScopedVariable key("GEAR_VERBS_PKEY", "32775");  // 0x8007
  CHECK(verbs::VerbsPort(FakeVerbs::library(), verbs::port_choice()).pkey_index() == 1);
}

TEST_CASE("verbs faults: addresses of two families are named on both ranks") {
  const Fresh fresh;
  const auto errors = errors_of_opening([]() -> const VerbsLibrary& {
    FakeVerbs::family = static_cast<int>(t_rank);
    return FakeVerbs::library();
  });
  check_both(errors, "rank 0: RoCE, GID ::ffff:10.0.0.1 cannot reach rank 1, RoCE, GID fd00::2");
  check_both(errors, "set GEAR_VERBS_DEVICE and GEAR_VERBS_GID so that all ranks use");
}

TEST_CASE("verbs: queue pairs have the service level and the traffic class that are asked for") {
  const Fresh fresh;
  const auto connect = [] {
    Ranks ranks = make_verbs_ranks(2, 200, {});
    const auto errors = errors_of(ranks, [](Transport& transport) {
      std::vector<std::byte> mine(4096);
      static_cast<void>(transport.expose(mine)->connect(transport));
    });
    CHECK(errors == std::vector<std::string>(2));
    return std::pair(FakeVerbs::counts().service_level, FakeVerbs::counts().traffic_class);
  };
  CHECK(connect() == std::pair(0, 0));
  const ScopedVariable level("GEAR_VERBS_SL", "5");
  const ScopedVariable traffic("GEAR_VERBS_TC", "106");
  CHECK(connect() == std::pair(5, 106));
  const ScopedVariable wrong("GEAR_VERBS_SL", "16");
  check_both(errors_of_opening(verbs_under_test),
             "GEAR_VERBS_SL='16' is not accepted: set an integer from 0 to 15");
}

TEST_CASE("verbs faults: memory that cannot be registered is refused on all ranks") {
  const Fresh fresh;
  Ranks ranks = make_verbs_ranks(2, 200, {1 << 16, 1, nullptr});
  FakeVerbs::settings.most_registered = 5 << 16;
  const auto errors = errors_of(ranks, [](Transport& transport) {
    // The first rank's fits.
    std::vector<std::byte> mine(transport.rank() == 0 ? 1 << 16 : 20 << 16);
    static_cast<void>(transport.expose(mine));
  });
  check_both(errors, "rank 1: fake0 registers ");
  check_both(errors,
             " of 1310720 bytes, and then fails (Cannot allocate memory): this process may "
             "lock ");
  check_both(errors, "raise the limit (ulimit -l, LimitMEMLOCK of slurmd), or use less memory");
}

TEST_CASE(
    "verbs faults: where it is not required, memory that one rank cannot register is nobody's") {
  const Fresh fresh;
  VerbsOptions options;
  options.required = false;
  Ranks ranks = make_verbs_ranks(2, 200, options);
  FakeVerbs::settings.most_registered = 5 << 16;
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(transport.rank() == 0 ? 1 << 16 : 20 << 16);
    expect(transport.expose(mine) == nullptr, "one rank's memory was exposed");
    expect(transport.duplicate()->expose(mine) == nullptr, "one rank's memory was exposed");
    std::byte one{};
    std::vector<std::byte> all(2);
    transport.allgather({&one, 1}, all);  // and goes on
  });
  CHECK(errors == std::vector<std::string>(2));
}

TEST_CASE("verbs faults: the device's limits are kept") {
  const Fresh fresh;
  FakeVerbs::settings.most_bytes_of_region = 40'000;  // no multiple of a page
  FakeVerbs::settings.most_bytes_of_message = 1000;
  FakeVerbs::settings.depth = 5;
  FakeVerbs::settings.completions = 7;
  Ranks ranks = make_verbs_ranks(2, 200, {uint64_t{1} << 30, 2, nullptr});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(200'000, static_cast<std::byte>(transport.rank() + 1));
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    const std::vector<RemoteRead> reads{{1 - transport.rank(), 1, 199'999, 0}};
    const ConstBytes read = reader->read(reads, 199'999);
    const auto other = static_cast<std::byte>(2 - transport.rank());
    expect(std::ranges::all_of(read, [&](std::byte one) { return one == other; }), "other bytes");
    transport.allgather({}, {});
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(FakeVerbs::counts().longest_chain == 5);
  CHECK(FakeVerbs::counts().reads >= 2 * 200);
}

// Ranks 0 and 1 share a node, as do 2 and 3: rank 0 reads of 2 alone, and 3 of 0.
TEST_CASE("verbs faults: pairs of ranks are connected of which one reads of the other") {
  const Fresh fresh;
  Ranks ranks = make_verbs_ranks(4, 200, {uint64_t{1} << 30, 3, nullptr});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(4096, static_cast<std::byte>(transport.rank() + 1));
    const auto memory = transport.expose(mine);
    const std::vector<std::vector<uint8_t>> from{
        {0, 0, 1, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0}};
    const auto reader = memory->connect(transport, from[transport.rank()]);
    transport.allgather({}, {});
    expect(FakeVerbs::counts().pairs == 2 * 2 * 3, "other pairs are connected");
    const std::vector<RemoteRead> reads{{transport.rank() == 0 ? 2U : 0U, 0, 64, 0}};
    if (transport.rank() % 3 == 0) {
      const ConstBytes read = reader->read(reads, 64);
      expect(read[63] == static_cast<std::byte>(reads[0].owner + 1), "other bytes");
    }
    transport.allgather({}, {});
  });
  CHECK(errors == std::vector<std::string>(4));
}

TEST_CASE("verbs faults: beyond 64 ranks one queue pair to each is enough") {
  for (const uint32_t size : {64U, 65U}) {
    const Fresh fresh;
    Ranks ranks = make_verbs_ranks(size, 200, {uint64_t{1} << 30, 4, nullptr});
    const auto errors = errors_of(ranks, [&](Transport& transport) {
      std::vector<std::byte> mine(4096, static_cast<std::byte>(transport.rank()));
      const auto memory = transport.expose(mine);
      std::vector<uint8_t> from(size);  // a ring
      const uint32_t owner = (transport.rank() + 1) % size;
      from[owner] = 1;
      const auto reader = memory->connect(transport, from);
      transport.allgather({}, {});
      expect(FakeVerbs::counts().pairs == uint64_t{size} * 2 * (size > 64 ? 1 : 4), "other pairs");
      const std::vector<RemoteRead> reads{{owner, 0, 64, 0}};
      expect(reader->read(reads, 64)[63] == static_cast<std::byte>(owner), "other bytes");
      transport.allgather({}, {});
    });
    CHECK(errors == std::vector<std::string>(size));
  }
}

TEST_CASE("verbs faults: reads are posted in chains") {
  const Fresh fresh;
  Ranks ranks = make_verbs_ranks(2, 200, {uint64_t{1} << 30, 2, nullptr});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(64 << 10);
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    std::vector<RemoteRead> reads;
    for (uint64_t i = 0; i < 1000; ++i) {
      reads.push_back({1 - transport.rank(), 64 * i, 64, 64 * i});
    }
    static_cast<void>(reader->read(reads, 64'000));
    transport.allgather({}, {});
  });
  CHECK(errors == std::vector<std::string>(2));
  CHECK(FakeVerbs::counts().reads == 2000);
  CHECK(FakeVerbs::counts().longest_chain == 32);
  CHECK(FakeVerbs::counts().chains == 2 * 32);
}

TEST_CASE("verbs faults: what became of a read is said in words, and to the group") {
  const Fresh fresh;
  const auto failure = std::make_shared<Failure>();
  Ranks ranks = make_verbs_ranks(2, 200, {uint64_t{1} << 30, 1, failure});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(4096);
    auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    if (transport.rank() == 1) {
      memory.reset();
    }
    transport.allgather({}, {});
    if (transport.rank() == 0) {
      const std::vector<RemoteRead> reads(40, {1, 0, 64, 0});
      std::string first;
      try {
        static_cast<void>(reader->read(reads, 64));
      } catch (const TransportError& error) {
        first = error.what();
      }
      try {
        static_cast<void>(reader->read(reads, 64));
      } catch (const TransportError& error) {
        expect(error.what() == first, "the second failure is another");
        transport.allgather({}, {});
        throw;
      }
    }
    transport.allgather({}, {});
  });
  CHECK(errors[1] == "");
  CHECK(errors[0] ==
        "[transport] rank 0 reads rows of rank 1 by verbs (fake0 port 2, RoCE, GID 2 "
        "::ffff:10.0.0.1, MTU 4096 from RoCE, GID ::ffff:10.0.0.1): remote access error (10): it "
        "does not offer the memory asked for: it has closed its buffer, which it may do only "
        "once all ranks have closed their loaders, or runs another build");
  CHECK(failure->text() == errors[0]);
}

TEST_CASE("verbs faults: memory for rows that cannot be registered is named, and to the group") {
  const Fresh fresh;
  const auto failure = std::make_shared<Failure>();
  Ranks ranks = make_verbs_ranks(2, 200, {uint64_t{1} << 30, 1, failure});
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(4096);
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    transport.allgather({}, {});
    std::string said;
    if (transport.rank() == 0) {
      FakeVerbs::settings.most_registered = 1 << 16;
      const std::vector<RemoteRead> reads{{1, 0, 64, 0}};
      for (int time = 0; time < 2; ++time) {  // and it stays of no use
        try {
          static_cast<void>(reader->read(reads, 64));
        } catch (const TransportError& error) {
          expect(said.empty() || said == error.what(), "the second failure is another");
          said = error.what();
        }
      }
    }
    transport.allgather({}, {});
    if (!said.empty()) {
      throw TransportError(said);
    }
  });
  CHECK(errors[1] == "");
  INFO(errors[0]);
  CHECK(errors[0].starts_with("[transport] fake0 registers 0 of 1048576 bytes, and then fails ("));
  CHECK(errors[0].find("raise the limit (ulimit -l, LimitMEMLOCK") != std::string::npos);
  CHECK(failure->text() == errors[0]);
}

TEST_CASE("verbs faults: reads that never end are given up when the group has failed") {
  const Fresh fresh;
  Ranks ranks = make_verbs_ranks(2, 3, {uint64_t{1} << 30, 1, nullptr});
  Ranks patient = make_loopback(2, 200);
  FakeVerbs::settings.answers = false;
  const auto errors = errors_of(ranks, [&](Transport& transport) {
    std::vector<std::byte> mine(4096);
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(*patient[transport.rank()]);
    if (transport.rank() == 1) {
      transport.allgather({}, {});  // to which rank 0 does not come
    } else {
      const std::vector<RemoteRead> reads{{1, 0, 64, 0}};
      static_cast<void>(reader->read(reads, 64));
    }
  });
  CHECK(errors[1].find("rank 0") != std::string::npos);
  CHECK(errors[0] == errors[1]);
}

TEST_CASE("verbs faults: reads that never end are given up in time") {
  const Fresh fresh;
  Ranks ranks = make_verbs_ranks(2, 3, {uint64_t{1} << 30, 1, nullptr});
  FakeVerbs::settings.answers = false;
  const auto errors = errors_of(ranks, [](Transport& transport) {
    std::vector<std::byte> mine(4096);
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    const std::vector<RemoteRead> reads{{1 - transport.rank(), 0, 64, 0}};
    static_cast<void>(reader->read(reads, 64));
  });
  CHECK(errors[0] ==
        "[transport] reads of rank 1 by verbs did not end within 3 s: see "
        "ibv_devinfo there, or set a longer time-out");
  CHECK(errors[1].find("reads of rank 0 by verbs did not end within") != std::string::npos);
}

TEST_CASE("verbs faults: an interrupt ends the read that it comes amid, and no other") {
  const Fresh fresh;
  const auto failure = std::make_shared<Failure>();
  Ranks ranks = make_verbs_ranks(2, 240, {uint64_t{1} << 30, 1, failure});
  gear::base::interrupt_check.store(&interrupt);
  const auto errors = errors_of(ranks, [](Transport& transport) {
    constexpr uint64_t kBytes = 8 << 20;  // for which the reader's memory has to grow
    std::vector<std::byte> mine(kBytes, static_cast<std::byte>(transport.rank() + 1));
    const auto memory = transport.expose(mine);
    const auto reader = memory->connect(transport);
    if (transport.rank() == 0) {
      const std::vector<RemoteRead> some(40, {1, 0, 64, 0});
      FakeVerbs::settings.answers = false;
      t_interrupted = true;
      bool ended = false;
      try {
        static_cast<void>(reader->read(some, 64));
      } catch (const Interrupt&) {
        ended = true;
      }
      t_interrupted = false;
      FakeVerbs::settings.answers = true;
      expect(ended, "it was not interrupted");
      const std::vector<RemoteRead> all{{1, 0, kBytes, 0}};
      const ConstBytes read = reader->read(all, kBytes);
      expect(std::ranges::all_of(read, [](std::byte one) { return one == std::byte{2}; }),
             "other bytes");
    }
    transport.allgather({}, {});
  });
  gear::base::interrupt_check.store(nullptr);
  CHECK(errors == std::vector<std::string>(2));
  CHECK(failure->text() == "");
}

TEST_CASE("verbs faults: lost packets are given up within the group's time-out") {
  CHECK(verbs::packet_timeout(300) == 18);
  CHECK(verbs::packet_timeout(2) == 15);
  CHECK(verbs::packet_timeout(0.1) == 12);
}

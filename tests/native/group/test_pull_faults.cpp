// What a rank that pulls owes to itself and to others when reads are slow, in vain or impossible.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/threads/interrupt.h"
#include "described_rows.h"
#include "group/pull/pull_source.h"
#include "ranks.h"
#include "transport/loopback.h"
#include "transport/one_sided/forwarding.h"
#include "transport/one_sided/remote_memory.h"
#include "transport/typed.h"

using namespace gear::testing;
using namespace gear::transport;
using gear::deliver::LoaderOptions;
using gear::deliver::Pipeline;
using gear::group::Peers;
using gear::group::PublishedShards;
using gear::plan::Batch;
using gear::store::Shard;

namespace {

constexpr double kLong = 240;

/// What happens amid the calls of one rank's transport.
struct Amid {
  std::function<void()> allgather = [] {};
  std::function<void(std::span<const RemoteRead>, Bytes landed)> read = [](auto, Bytes) {};
};

struct PeekReader final : RemoteReader {
  ConstBytes read(std::span<const RemoteRead> reads, uint64_t bytes) override {
    landed.assign(bytes, std::byte{});
    for (const RemoteRead& one : reads) {
      std::memcpy(landed.data() + one.to, there[one.owner] + one.from, one.bytes);
    }
    amid->read(reads, landed);
    return landed;
  }

  std::vector<const std::byte*> there;
  std::shared_ptr<Amid> amid;
  std::vector<std::byte> landed;
};

struct PeekMemory final : RemoteMemory {
  std::unique_ptr<RemoteReader> connect(Transport&, std::span<const uint8_t>) override {
    auto reader = std::make_unique<PeekReader>();
    reader->there = there;
    reader->amid = amid;
    return reader;
  }
  void renew(Bytes) override { throw std::logic_error("an index stays where it is"); }

  std::vector<const std::byte*> there;
  std::shared_ptr<Amid> amid;
};

/// Ranks of one process, which read one another's memory where it lies.
class PeekTransport final : public Forwarding {
 public:
  PeekTransport(std::unique_ptr<Transport> messages, std::shared_ptr<Amid> amid)
      : Forwarding(*messages), owned_(std::move(messages)), amid_(std::move(amid)) {}

  void allgather(ConstBytes mine, Bytes all) override {
    inner_.allgather(mine, all);
    amid_->allgather();
  }
  std::unique_ptr<Transport> duplicate() override {
    return std::make_unique<PeekTransport>(inner_.duplicate(), amid_);
  }
  std::unique_ptr<RemoteMemory> expose(Bytes memory) override {
    auto exposed = std::make_unique<PeekMemory>();
    const std::byte* const mine = memory.data();
    exposed->there = gear::transport::allgather(inner_, mine);
    exposed->amid = amid_;
    return exposed;
  }

 private:
  std::unique_ptr<Transport> owned_;
  std::shared_ptr<Amid> amid_;
};

/// A rank with episodes of 8 steps, which it publishes; of tier host, read one-sided.
struct PeekRank {
  explicit PeekRank(Transport& transport)
      : shard(std::make_shared<Shard>(schema(), options_of_rank(transport.rank()))),
        writer(shard),
        peers(std::make_shared<Peers>(shard,
                                      std::make_shared<PeekTransport>(transport.duplicate(), amid),
                                      std::vector<uint32_t>(transport.size(), 0), false)),
        published(std::make_shared<PublishedShards>(*peers)) {
    for (uint64_t episode = 0; episode < 4; ++episode) {
      add_episode(writer, 100 * transport.rank() + episode, 8);
    }
    transport.allgather({}, {});
  }

  static gear::store::ShardOptions options_of_rank(uint32_t rank) {
    gear::store::ShardOptions options = options_of(40);
    options.owner = rank;
    return options;
  }

  std::unique_ptr<Pipeline> pull() const {
    LoaderOptions options;
    options.outputs = windows();
    options.batch_size = 64;
    options.prefetch = 2;
    return gear::group::make_pull_pipeline(peers, published, {peers->shard(), options});
  }

  std::shared_ptr<Amid> amid = std::make_shared<Amid>();
  std::shared_ptr<Shard> shard;
  gear::store::Writer writer;
  std::shared_ptr<Peers> peers;
  std::shared_ptr<PublishedShards> published;
};

struct Interrupt {};
thread_local bool t_interrupted = false;

void interrupt() {
  if (t_interrupted) {
    throw Interrupt();
  }
}

struct Interrupts {
  Interrupts() { gear::base::interrupt_check.store(&interrupt); }
  ~Interrupts() { gear::base::interrupt_check.store(nullptr); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
};

bool next_is_interrupted(Pipeline& loader) {
  t_interrupted = true;
  bool ended = false;
  try {
    Batch batch;
    loader.next(kLong, batch);
  } catch (const Interrupt&) {
    ended = true;
  }
  t_interrupted = false;
  return ended;
}

void none(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) {
    CHECK(error == "");
  }
}

}  // namespace

TEST_CASE("pull faults: a rank that cannot map another's index is named by all") {
  Ranks ranks = make_loopback(2, kLong);
  const auto errors = errors_of(ranks, [](Transport& transport) {
    const auto amid = std::make_shared<Amid>();
    gear::store::ShardOptions options = PeekRank::options_of_rank(transport.rank());
    options.tier = gear::memory::Tier::kShared;
    options.name = gear::base::cat("test-pull-faults-", ::getpid(), "-", transport.rank());
    Peers peers(std::make_shared<Shard>(schema(), options),
                std::make_shared<PeekTransport>(transport.duplicate(), amid), {0, 0}, false);
    if (transport.rank() == 1) {
      amid->allgather = [name = peers.shared_name(0, 0)] {
        for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
          if (file.path().string().ends_with(name)) {
            std::filesystem::remove(file.path());
          }
        }
      };
    }
    PublishedShards published(peers);
  });
  INFO(errors[0]);
  INFO(errors[1]);
  CHECK(errors[1].find("-l0-r0") != std::string::npos);
  CHECK(errors[0] == "on rank 1: " + errors[1]);
}

TEST_CASE("pull faults: a rank's own writers do not wait while it reads from another") {
  const Interrupts interrupts;
  Ranks ranks = make_loopback(2, kLong);
  none(errors_of(ranks, [](Transport& transport) {
    PeekRank rank(transport);
    if (transport.rank() == 0) {
      std::atomic<int> written{0};
      rank.amid->read = [&](auto, Bytes) {
        if (written < 20) {
          t_interrupted = true;  // if it waits for readers
          add_episode(rank.writer, 1000 + ++written, 39);
          t_interrupted = false;
        }
      };
      const auto loader = rank.pull();
      for (int number = 0; number < 4; ++number) {
        Batch batch;
        try {
          expect(loader->next(kLong, batch) == Pipeline::Next::kBatch, "no batch");
        } catch (const Interrupt&) {
          throw std::logic_error("a writer waited");
        }
        expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
      }
      expect(written == 20, "nothing was written meanwhile");
    }
    transport.allgather({}, {});
  }));
}

TEST_CASE("pull faults: a loader that waits for others is closed, and set back, at once") {
  const Interrupts interrupts;
  Ranks ranks = make_loopback(2, kLong);
  none(errors_of(ranks, [](Transport& transport) {
    PeekRank rank(transport);
    if (transport.rank() == 0) {
      enum class Mode : uint8_t { kAnswers, kOtherUse, kSilent };
      std::atomic<Mode> mode{Mode::kAnswers};
      std::atomic<uint64_t> reads_at_close{0};
      std::atomic<bool> closing{false};
      std::atomic<uint64_t> amid_read{0};
      rank.amid->read = [&](std::span<const RemoteRead> reads, Bytes landed) {
        ++amid_read;
        reads_at_close += closing ? 1 : 0;
        while (mode == Mode::kSilent) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          gear::base::check_interrupt();
        }
        for (const RemoteRead& one : reads) {
          if (mode == Mode::kOtherUse && one.bytes == sizeof(uint64_t)) {
            const uint64_t use = ~amid_read.load();
            std::memcpy(landed.data() + one.to, &use, sizeof use);
          }
        }
      };
      for (const Mode fault : {Mode::kOtherUse, Mode::kSilent}) {
        auto loader = rank.pull();
        const Pipeline::State start = loader->state();
        Batch batch;
        loader->next(kLong, batch);
        mode = fault;
        const uint64_t before = amid_read;
        // Those in flight may be there already, and an interrupt may come before the first read.
        for (int number = 0; number < 8 && !next_is_interrupted(*loader); ++number) {
        }
        for (int tries = 0; tries < 1000 && amid_read == before; ++tries) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          next_is_interrupted(*loader);
        }
        expect(amid_read > before, "nothing was read");
        closing = true;
        loader->restore(start);
        closing = false;
        expect(reads_at_close.exchange(0) < 100, "it went on reading for what was dropped");
        mode = Mode::kAnswers;
        loader->next(kLong, batch);
        expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
        mode = fault;
        for (int number = 0; number < 8 && !next_is_interrupted(*loader); ++number) {
        }
        closing = true;
        loader.reset();
        closing = false;
        expect(reads_at_close.exchange(0) < 100, "it went on reading when it was closed");
        mode = Mode::kAnswers;
      }
      // And the buffer goes on.
      const auto loader = rank.pull();
      Batch batch;
      loader->next(kLong, batch);
      expect(wrong_rows(batch) == 0, "rows are torn, or of another step");
    }
    transport.allgather({}, {});
  }));
}

TEST_CASE("pull faults: threads that read from others take turns") {
  Ranks ranks = make_loopback(2, kLong);
  none(errors_of(ranks, [](Transport& transport) {
    PeekRank rank(transport);
    if (transport.rank() == 0) {
      std::atomic<bool> first_reads{false};
      std::atomic<bool> second_comes{false};
      std::vector<std::thread::id> turns;
      rank.amid->read = [&](auto, Bytes) {
        first_reads = true;
        while (!second_comes) {
          std::this_thread::yield();
        }
        if (turns.empty()) {
          std::this_thread::sleep_for(std::chrono::seconds(1));  // it waits by now
        }
        turns.push_back(std::this_thread::get_id());
      };
      const auto read = [&rank] {
        std::array<std::byte, 64> word;
        const std::array reads{PublishedShards::Read{1, 0, word.size(), word.data()}};
        rank.published->read(PublishedShards::Part::kPages, reads);
      };
      std::jthread second([&] {
        while (!first_reads) {
          std::this_thread::yield();
        }
        second_comes = true;
        read();
      });
      const std::thread::id its = second.get_id();
      for (int number = 0; number < 4; ++number) {
        read();
      }
      second.join();
      expect(turns.size() == 5 && turns[1] == its, "who came second did not read second");
    }
    transport.allgather({}, {});
  }));
}

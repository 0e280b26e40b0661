// What a forked child may do with its copy of a shard, whatever other threads did at the fork.
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/threads/origin.h"
#include "child_process.h"
#include "store/checkpoint/snapshot.h"
#include "store/shard.h"
#include "store/writing/writer.h"
#include "temporary_folder.h"

using namespace gear::store;
using gear::testing::in_child;

namespace {

constexpr std::array<uint64_t, 4> kRows{1, 2, 3, 4};
constexpr int kHangs = 30;  // seconds, until a child that waits for ever is ended

std::shared_ptr<Shard> make(gear::memory::Tier tier = gear::memory::Tier::kHost,
                            const std::string& name = "") {
  ShardOptions options;
  options.page_steps = kRows.size();
  options.capacity = 8 * kRows.size();
  options.tier = tier;
  options.name = name;
  return gear::base::make_shared_here<Shard>(Schema({{"n", {}, gear::base::DType::kU64}}), options);
}

void append(Writer& writer) {
  const std::byte* columns[] = {reinterpret_cast<const std::byte*>(kRows.data())};
  writer.append(columns, kRows.size(), {});
}

// What the refusal says; empty: none.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const gear::base::InvalidArgument& error) {
    return error.what();
  }
  return "";
}

bool names_both(const std::string& text, pid_t parent) {
  return text.find(gear::base::cat("process ", parent)) != std::string::npos &&
         text.find(gear::base::cat("process ", ::getpid())) != std::string::npos &&
         text.find("forked") != std::string::npos;
}

uint64_t steps_by_episode(Shard& shard) {
  const auto lock = shard.lock();
  const Index& index = shard.index();
  uint64_t steps = 0;
  for (uint32_t e = index.state().oldest; e != kNone; e = index.episode(e).newer) {
    steps += index.episode(e).end - index.episode(e).begin;
  }
  return steps;
}

uint64_t num_steps(Shard& shard) {
  const auto lock = shard.lock();
  return shard.index().state().num_steps;
}

}  // namespace

TEST_CASE("a forked child changes nothing of a shard, whatever its tier") {
  const gear::testing::TemporaryFolder folder;
  const std::string name = gear::base::cat("test-forked-", ::getpid());
  for (const auto& shard : {make(), make(gear::memory::Tier::kShared, name)}) {
    Writer open(shard);
    append(open);
    const pid_t parent = ::getpid();
    const std::vector<std::byte> rows(shard->data(), shard->data() + shard->region().bytes());
    CHECK(in_child([&] {
            const std::array<int64_t, 1> id{0};
            const std::array<float, 1> priority{1.0F};
            const std::vector<std::function<void()>> calls = {
                [&] { append(open); },
                [&] { open.end_episode(EpisodeState::kTerminated, -1.0, {}); },
                [&] { Writer made(shard); },
                [&] { shard->update(id, priority); },
                [&] { shard->update_from_device(nullptr, nullptr, 0, 0); },
                [&] { save_shard(*shard, folder / "saved"); }};
            int refused = 0;
            for (const auto& call : calls) {
              refused += names_both(refusal(call), parent) ? 1 : 0;
            }
            return num_steps(*shard) == kRows.size() ? refused : 100;
          }) == 6);
    CHECK(std::vector<std::byte>(shard->data(), shard->data() + shard->region().bytes()) == rows);
    append(open);
    CHECK(num_steps(*shard) == 2 * kRows.size());
  }
}

TEST_CASE("rows may be read in a forked child where they are its own") {
  const std::string name = gear::base::cat("test-forked-", ::getpid());
  const auto host = make();
  const auto shared = make(gear::memory::Tier::kShared, name);
  const pid_t parent = ::getpid();
  CHECK(in_child([&] {
          const bool own = refusal([&] { host->check_draws("loader"); }).empty();
          const std::string text = refusal([&] { shared->check_rows("collect"); });
          return own && names_both(text, parent) && text.find("'shared'") != std::string::npos ? 0
                                                                                               : 1;
        }) == 0);
  CHECK(refusal([&] { shared->check_draws("loader"); }).empty());
}

TEST_CASE("a fork waits for a call that holds the lock, and the child's copy is whole") {
  const auto shard = make();
  Writer writer(shard);
  append(writer);
  std::atomic<bool> held{false};
  std::thread other([&] {
    const auto lock = shard->lock();
    held = true;
    held.notify_all();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the fork begins
  });
  held.wait(false);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(kHangs);
    ::_exit(num_steps(*shard) == kRows.size() ? 0 : 1);
  }
  other.join();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(num_steps(*shard) == kRows.size());
}

TEST_CASE("a fork does not wait for ever, and the child's copy is refused then") {
  const auto shard = make();
  const auto lock = shard->lock();
  std::thread forks([&] {
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(kHangs);
      const std::string text = refusal([&] { shard->lock(); });
      ::_exit(names_both(text, parent) && text.find("whole") != std::string::npos ? 0 : 1);
    }
    int status = 1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  });
  forks.join();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // see wait_for_others()
TEST_CASE("children that are forked while writers write have a whole copy each") {
  const auto shard = make();
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      Writer writer(shard);
      while (!stop) {
        append(writer);
        writer.end_episode(EpisodeState::kTerminated, -1.0, {});
      }
    });
  }
  int whole = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(kHangs);
      ::_exit(num_steps(*shard) == steps_by_episode(*shard) ? 0 : 1);
    }
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    whole += status == 0 ? 1 : 0;
  }
  stop = true;
  for (std::thread& writer : writers) {
    writer.join();
  }
  CHECK(whole == 20);
}
#endif

TEST_CASE("a forked child leaves its copy of a shard as it is") {
  struct Counted {
    explicit Counted(std::atomic<int>& counted) : ends(counted) {}
    ~Counted() { ++ends; }
    std::atomic<int>& ends;
  };
  std::atomic<int> ends{0};
  auto made = gear::base::make_shared_here<Counted>(ends);
  CHECK(in_child([&] {
          made.reset();
          return ends.load();
        }) == 0);
  made.reset();
  CHECK(ends == 1);
}

// Steps of several environments: what is copied without the lock, and what a refused call leaves.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "store/shard.h"
#include "store/writing/appender.h"

using namespace gear::store;

namespace {

constexpr uint64_t kPageSteps = 2;

std::shared_ptr<Shard> make_shard(uint64_t pages, uint64_t row_bytes) {
  ShardOptions options;
  options.capacity = pages * kPageSteps;
  options.page_steps = kPageSteps;
  const Column column{"x", {static_cast<int64_t>(row_bytes)}, gear::base::DType::kU8};
  return std::make_shared<Shard>(Schema({column}), options);
}

// Memory whose first reader waits until a thread has got the shard's lock, or 10 s.
class WatchedMemory {
 public:
  WatchedMemory(Shard& shard, size_t bytes) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
    watched_ = this;
    struct sigaction action{};
    action.sa_handler = [](int) { watched_->wait(); };
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, &before_);
    other_ = std::thread([this, &shard] {
      while (!is_read_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const auto held = shard.lock();
      locked_ = true;
    });
  }
  ~WatchedMemory() {
    is_read_ = true;
    other_.join();
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, bytes_);
  }
  WatchedMemory(const WatchedMemory&) = delete;
  WatchedMemory& operator=(const WatchedMemory&) = delete;

  const std::byte* data() const { return static_cast<const std::byte*>(memory_); }
  bool was_read_without_the_lock() const { return in_time_; }

 private:
  // In the handler of a signal of the thread that reads.
  void wait() {
    is_read_ = true;
    for (int i = 0; i < 10'000 && !locked_; ++i) {
      usleep(1000);
    }
    in_time_ = locked_.load();
    mprotect(memory_, bytes_, PROT_READ | PROT_WRITE);
  }

  inline static WatchedMemory* watched_ = nullptr;
  size_t bytes_;
  void* memory_;
  struct sigaction before_{};
  std::atomic<bool> is_read_{false};
  std::atomic<bool> locked_{false};
  std::atomic<bool> in_time_{false};
  std::thread other_;
};

}  // namespace

TEST_CASE("many bytes of closing steps are copied without the lock") {
  constexpr uint64_t kRowBytes = 24 << 10;
  const auto shard = make_shard(8, kRowBytes);
  const std::vector<std::byte> rows(2 * kRowBytes, std::byte{1});
  const std::array columns{rows.data()};
  std::array<Shard::Place, 2> at;
  std::array<Shard::Place*, 2> places{&at[0], &at[1]};
  const std::array<uint64_t, 2> numbers{0, 1};
  uint64_t done = 0;
  Appender appender(*shard);
  REQUIRE(appender.append({places, numbers, columns, {}}, done, std::nullopt));
  WatchedMemory closing(*shard, rows.size());
  const std::array<const std::byte*, 1> closing_columns{closing.data()};
  const std::array<Appender::EnvironmentEnd, 2> ends{
      {{&at[0], 0, EpisodeState::kTerminated, -1.0}, {&at[1], 1, EpisodeState::kTruncated, -1.0}}};
  appender.end_episodes(ends, {closing_columns});
  CHECK(closing.was_read_without_the_lock());
  CHECK(shard->index().state().num_steps == 2);
  CHECK(shard->index().page(0).rows == 2);
}

TEST_CASE("a call that finds no page for all that it opens leaves nothing, and takes no page") {
  const auto shard = make_shard(4, 1);
  const std::array<std::byte, 3> rows{};
  const std::array columns{rows.data()};
  const std::array<uint64_t, 3> numbers{0, 1, 2};
  std::array<Shard::Place, 3> first;
  std::array<Shard::Place, 3> second;
  const auto append = [&](std::array<Shard::Place, 3>& at, size_t count) {
    std::array<Shard::Place*, 3> places{&at[0], &at[1], &at[2]};
    uint64_t done = 0;
    Appender(*shard).append(
        {std::span(places).first(count), std::span(numbers).first(count), columns, {}}, done,
        std::nullopt);
  };
  for (int step = 0; step < 3; ++step) {
    append(first, 2);  // of two pages each
  }
  CHECK_THROWS_AS(append(second, 3), gear::base::OutOfMemory);
  CHECK(shard->index().state().num_steps == 6);
  CHECK(shard->index().state().num_episodes == 2);
  for (const Shard::Place& at : second) {
    CHECK(at.episode == kNone);
  }
  append(second, 2);
  CHECK(shard->index().state().num_episodes == 4);
}

// A draw counts where it is committed, and was not made elsewhere; a read holds its pages.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deliver/draw.h"
#include "described_rows.h"
#include "expect_message.h"
#include "select/sampler.h"

using namespace gear::deliver;
using namespace gear::testing;
using gear::select::Sampler;
using gear::select::Selection;
using gear::store::Read;
using gear::store::Shard;

namespace {

constexpr uint64_t kSteps = 8;

// Every step may be drawn once.
struct Drawn {
  Drawn() {
    gear::store::ShardOptions shard_options = options_of(kSteps);
    shard_options.max_times_sampled = 1;
    shard_options.rate_limiter = gear::store::RateLimiter(1.0, 0, 100.0);
    shard = std::make_shared<Shard>(schema(), shard_options);
    gear::store::Writer writer(shard);
    add_episode(writer, 1, kSteps);
    options.outputs = {{"step", 1, 0, 1}};
    options.batch_size = 5;
    options.sampler.policy = gear::select::Policy::kFifo;
    sampler = std::make_unique<Sampler>(options.sampler, shard->index());
  }

  uint64_t may_be_drawn() const { return shard->index().steps().counts().total(); }

  std::shared_ptr<Shard> shard;
  LoaderOptions options;
  std::unique_ptr<Sampler> sampler;
};

// Appends one more episode, which takes the page of the oldest step; `done` is set behind it.
std::thread appending(const std::shared_ptr<Shard>& shard, std::atomic<bool>& done) {
  return std::thread([&] {
    gear::store::Writer writer(shard);
    add_episode(writer, 2, 1);
    done = true;
  });
}

void expect_waiting(const std::atomic<bool>& done) {
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(!done);
}

}  // namespace

TEST_CASE("a draw that is committed is taken, and the lock given up") {
  Drawn of;
  TakenBatch taken;
  std::unique_lock<std::mutex> lock = of.shard->lock();
  {
    Draw draw(*of.shard, lock);
    REQUIRE(draw.wait(of.options, of.sampler->offered(), false, false, 0.0));
    Selection selection;
    of.sampler->select(of.shard->index(), 5, selection);
    Read read;
    draw.commit(5, taken, &read);
    CHECK(read.open());
    CHECK(!lock.owns_lock());
  }
  CHECK(of.may_be_drawn() == kSteps - 5);
  CHECK(of.shard->rate_limiter().may_sample(100 + kSteps - 5));
  CHECK(!of.shard->rate_limiter().may_sample(100 + kSteps - 4));
  CHECK(of.shard->rate_limiter().num_sampled() == 0);
  taken.deliver();
  CHECK(of.shard->rate_limiter().num_sampled() == 5);
}

TEST_CASE("a draw that fails was not made, whoever has the lock then") {
  for (const bool unlocked : {false, true}) {
    CAPTURE(unlocked);
    Drawn of;
    const auto fail = [&] {
      std::unique_lock<std::mutex> lock = of.shard->lock();
      Draw draw(*of.shard, lock);
      REQUIRE(draw.wait(of.options, of.sampler->offered(), false, false, 0.0));
      Selection selection;
      of.sampler->select(of.shard->index(), 5, selection);
      CHECK(of.may_be_drawn() == kSteps - 5);
      if (unlocked) {
        lock.unlock();  // as in an exchange with other ranks
      }
      throw std::runtime_error("behind the selection");
    };
    CHECK_THROWS_AS(fail(), std::runtime_error);
    CHECK(of.may_be_drawn() == kSteps);
    CHECK(of.shard->rate_limiter().may_sample(100 + kSteps));
    CHECK(of.shard->lock().owns_lock());  // it is free
  }
}

TEST_CASE("a draw of nothing is refused, or waited for where batches are ahead") {
  const auto shard = std::make_shared<Shard>(schema(), options_of(kSteps));
  LoaderOptions options;
  options.batch_size = 1;
  std::unique_lock<std::mutex> lock = shard->lock();
  Draw draw(*shard, lock);
  const gear::store::SumTree& offered = shard->index().steps().counts();
  CHECK(!draw.wait(options, offered, false, true, 0.0));
  expect_message<gear::base::InvalidArgument>(
      [&] { draw.wait(options, offered, false, false, 0.0); },
      "[sampler] nothing to sample: 0 steps");
  CHECK(lock.owns_lock());
}

TEST_CASE("a page is not written again while a read is open, and is once it ends") {
  struct Ended final : gear::store::ReadEnd {
    bool done() const noexcept override { return is; }
    std::atomic<bool> is{false};
  };
  for (const int way : {0, 1, 2, 3}) {
    CAPTURE(way);
    const auto shard = std::make_shared<Shard>(schema(), options_of(kSteps));
    {
      gear::store::Writer writer(shard);
      add_episode(writer, 1, kSteps);
    }
    std::unique_lock<std::mutex> lock = shard->lock();
    Read read = shard->begin_read();
    lock.unlock();
    CHECK(read.open());
    std::atomic<bool> done{false};
    std::thread writer = appending(shard, done);
    expect_waiting(done);
    if (way == 0) {
      read.end();
    } else if (way == 1) {  // its owner goes, after it was handed on
      Read other = std::move(read);
      CHECK(other.open());
      expect_waiting(done);
    } else if (way == 2) {  // another one takes its place
      read = Read();
    } else {
      const auto end = std::make_shared<Ended>();
      read.end_when(end);
      expect_waiting(done);
      end->is = true;
    }
    CHECK(!read.open());
    writer.join();
    CHECK(done);
  }
}

TEST_CASE("no more ends of reads are kept than reads are under way") {
  struct End final : gear::store::ReadEnd {
    bool done() const noexcept override { return is; }
    std::atomic<bool> is{false};
  };
  const auto shard = std::make_shared<Shard>(schema(), options_of(kSteps));
  const auto begin = [&] {
    const auto lock = shard->lock();
    return shard->begin_read();
  };
  auto under_way = std::make_shared<End>();
  begin().end_when(under_way);
  std::vector<std::weak_ptr<End>> ended;
  for (int batch = 0; batch < 100; ++batch) {
    auto end = std::make_shared<End>();
    end->is = true;
    begin().end_when(end);
    ended.push_back(end);
  }
  ended.pop_back();  // is looked at by the next one
  CHECK(std::ranges::all_of(ended, [](const auto& end) { return end.expired(); }));
  CHECK(under_way.use_count() == 2);
}

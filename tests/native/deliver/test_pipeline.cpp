// The queue between a source and a consumer, with a source whose batches are numbers.
#include "deliver/pipeline.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "child_process.h"
#include "deliver/block_pool.h"
#include "deliver/make_source.h"
#include "described_rows.h"
#include "expect_message.h"

using namespace gear::deliver;
using namespace gear::testing;
using gear::plan::Batch;
using gear::plan::BatchLayout;
using Next = Pipeline::Next;

namespace {

constexpr uint64_t kForEver = UINT64_MAX;

// What a test asks a source of numbers to do, and what it was asked for.
struct Script {
  uint64_t fails_to_draw = kForEver;    // the draw of this number
  uint64_t fails_to_gather = kForEver;  // what comes after it
  uint64_t ends_at = kForEver;          // an epoch
  uint64_t allowed = kForEver;          // draws below this number
  std::vector<std::string> calls;
};

class Numbers final : public Source {
 public:
  explicit Numbers(Script& script) : script_(script) {
    facts_.layout = std::make_shared<BatchLayout>(schema(), windows(), 1, false);
  }

  std::unique_ptr<Job> make_job() override {
    script_.calls.push_back("make");
    return std::make_unique<Job>();
  }

  bool draw(Job& job, bool ahead, std::optional<double> timeout_s) override {
    CHECK((!ahead || timeout_s == 0.0));
    CHECK(job.batch.block == nullptr);
    const uint64_t number = law_.position().numbers.at(0);
    if (number >= script_.allowed) {
      return false;
    }
    law_.chance()->next(1, 0, 1);
    script_.calls.push_back("draw " + std::to_string(number));
    if (number == script_.fails_to_draw) {
      job.outcome = Job::Outcome::kFailed;
      job.error = std::make_exception_ptr(gear::base::InvalidArgument("drawn in vain"));
    } else if (number == script_.ends_at) {
      job.outcome = Job::Outcome::kEpochEnd;
    } else {
      std::vector<std::byte> bytes(facts_.layout->bytes);
      std::memcpy(bytes.data(), &number, sizeof number);
      job.batch.layout = facts_.layout;
      job.batch.items = 1;
      job.batch.rows.assign(facts_.layout->windows.size(), 1);
      fill(job, bytes);
      if (number == script_.fails_to_gather) {
        job.error = std::make_exception_ptr(gear::base::OutOfMemory("gathered in vain"));
      }
    }
    return true;
  }

  void finish(Job& job) override { note("finish ", job); }
  void comes_next(Job& job) override { note("next ", job); }

  void fill(Job& job, std::span<const std::byte> bytes) override {
    job.batch.block = host_block(bytes.size());
    std::memcpy(job.batch.block.get(), bytes.data(), bytes.size());
  }

  void drop() override { script_.calls.push_back("drop"); }
  gear::select::Law& law() override { return law_; }
  uint64_t batches_per_epoch() override { return script_.ends_at; }
  void report(Stats& stats) override { stats.gather_s = 2.0; }

 private:
  void note(const std::string& call, const Job& job) {
    const bool is_batch = job.outcome == Job::Outcome::kBatch;
    script_.calls.push_back(
        call + (is_batch ? std::to_string(*job.batch.at<uint64_t>(0)) : std::string("none")));
  }

  Script& script_;
  gear::select::Law law_{{.policy = gear::select::Policy::kWeighted}};
};

Pipeline numbers(Script& script, uint64_t prefetch) {
  return {std::make_unique<Numbers>(script), prefetch};
}

uint64_t next_number(Pipeline& pipeline) {
  Batch batch;
  REQUIRE(pipeline.next(1.0, batch) == Next::kBatch);
  return *batch.at<uint64_t>(0);
}

}  // namespace

TEST_CASE("a batch is drawn by the call that delivers the one `prefetch` before it") {
  Script script;
  Pipeline pipeline = numbers(script, 2);
  CHECK(next_number(pipeline) == 0);
  CHECK(script.calls == std::vector<std::string>{"make", "draw 0", "make", "draw 1", "make",
                                                 "draw 2", "finish 0", "next 1"});
  script.calls.clear();
  CHECK(next_number(pipeline) == 1);
  CHECK(script.calls == std::vector<std::string>{"draw 3", "finish 1", "next 2"});
  CHECK(pipeline.stats().batches == 2);
  CHECK(pipeline.stats().items == 2);
  CHECK(pipeline.stats().gather_s == 2.0);
}

TEST_CASE("nothing is drawn beyond the end of an epoch, or an error, before it is delivered") {
  for (const bool fails : {false, true}) {
    CAPTURE(fails);
    Script script;
    (fails ? script.fails_to_draw : script.ends_at) = 1;
    Pipeline pipeline = numbers(script, 3);
    CHECK(next_number(pipeline) == 0);
    CHECK(script.calls.back() == "next none");
    Batch batch;
    if (fails) {
      expect_message<gear::base::InvalidArgument>([&] { pipeline.next(1.0, batch); },
                                                  "drawn in vain");
    } else {
      CHECK(pipeline.next(1.0, batch) == Next::kEpochEnd);
    }
    CHECK(next_number(pipeline) == 2);
    CHECK(pipeline.stats().batches == 2);
  }
}

TEST_CASE("what fails after its draw is thrown in its batch's place, once") {
  Script script;
  script.fails_to_gather = 1;
  Pipeline pipeline = numbers(script, 2);
  CHECK(next_number(pipeline) == 0);
  Batch batch;
  expect_message<gear::base::OutOfMemory>([&] { pipeline.next(1.0, batch); }, "gathered in vain");
  CHECK(batch.block == nullptr);
  CHECK(next_number(pipeline) == 2);
}

TEST_CASE("without a draw in time there is no batch, and those in flight are delivered") {
  Script script;
  script.allowed = 2;
  Pipeline pipeline = numbers(script, 2);
  CHECK(next_number(pipeline) == 0);
  CHECK(next_number(pipeline) == 1);
  Batch batch;
  CHECK(pipeline.next(0.0, batch) == Next::kTimedOut);
  script.allowed = kForEver;
  CHECK(next_number(pipeline) == 2);
}

TEST_CASE("a state holds what is in flight, and a restored pipeline goes on from there") {
  Script script;
  script.ends_at = 3;
  Pipeline first = numbers(script, 3);
  CHECK(next_number(first) == 0);
  const Pipeline::State state = first.state();
  REQUIRE(state.pending.size() == 3);
  CHECK(state.position.numbers.at(0) == 4);
  CHECK(state.pending[2].epoch_end);
  Script other;
  Pipeline second = numbers(other, 1);
  CHECK(next_number(second) == 0);
  other.calls.clear();
  second.restore(state);
  CHECK(other.calls == std::vector<std::string>{"make", "make", "drop", "finish 1"});
  CHECK(next_number(second) == 1);
  CHECK(next_number(second) == 2);
  Batch batch;
  CHECK(second.next(1.0, batch) == Next::kEpochEnd);
  CHECK(next_number(second) == 4);
  CHECK(next_number(first) == 1);
}

TEST_CASE("a state that is refused leaves what is in flight") {
  Script script;
  Pipeline first = numbers(script, 2);
  CHECK(next_number(first) == 0);
  const Pipeline::State state = first.state();
  Script other;
  Pipeline second = numbers(other, 3);
  for (uint64_t number = 0; number < 7; ++number) {
    CHECK(next_number(second) == number);
  }
  Pipeline::State refused = state;
  refused.position.beta = -1;
  expect_message<gear::base::InvalidArgument>([&] { second.restore(refused); }, "beta -1");
  Pipeline::State torn = state;
  torn.pending[1].items = 9;
  expect_message<gear::base::InvalidArgument>([&] { second.restore(torn); }, "9 items");
  for (uint64_t number = 7; number < 12; ++number) {
    CHECK(next_number(second) == number);
  }
}

TEST_CASE("draws count when they are delivered, and are given back by who ends before") {
  gear::store::ShardOptions options = options_of(40);
  options.max_times_sampled = 1;
  options.rate_limiter = gear::store::RateLimiter(1.0, 24, 30.0);
  const auto shard = std::make_shared<gear::store::Shard>(schema(), options);
  gear::store::Writer writer(shard);
  add_episode(writer, 1, 24);
  LoaderOptions wanted;
  wanted.outputs = windows();
  wanted.batch_size = 4;
  wanted.prefetch = 2;
  wanted.sampler.policy = gear::select::Policy::kFifo;
  const auto steps_sampled = [&] {
    const auto lock = shard->lock();
    return shard->index().state().counters.steps_sampled;
  };
  Batch batch;
  Pipeline::State state;
  for (uint64_t turn = 1; turn <= 3; ++turn) {
    const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
    REQUIRE(pipeline->next(1.0, batch) == Next::kBatch);
    CHECK(steps_sampled() == 4 * turn);
    CHECK(shard->rate_limiter().num_sampled() == 4 * turn);
    CHECK(shard->index().steps().counts().total() == 24 - 4 * (turn + 2));
    state = pipeline->state();
  }
  CHECK(shard->index().steps().counts().total() == 12);
  CHECK(shard->rate_limiter().may_sample(30 - 12));
  CHECK(!shard->rate_limiter().may_sample(30 - 11));
  // A state takes its draws again, and another one in its place gives them back.
  const std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, wanted});
  for (int i = 0; i < 2; ++i) {
    pipeline->restore(state);
    CHECK(shard->index().steps().counts().total() == 4);
    CHECK(!shard->rate_limiter().may_sample(30 - 19));
  }
  for (uint64_t turn = 4; turn <= 6; ++turn) {
    REQUIRE(pipeline->next(1.0, batch) == Next::kBatch);
    CHECK(wrong_rows(batch) == 0);
    CHECK(steps_sampled() == 4 * turn);
  }
  CHECK(shard->index().state().num_episodes == 0);
}

TEST_CASE("in a forked child a pipeline is refused, and destroyed without its parent's threads") {
  const auto shard = std::make_shared<gear::store::Shard>(schema(), options_of(40));
  gear::store::Writer writer(shard);
  add_episode(writer, 1, 8);
  LoaderOptions options;
  options.outputs = windows();
  options.batch_size = 4;
  std::unique_ptr<Pipeline> pipeline = make_pipeline(shard, {*shard, options});
  Batch batch;
  REQUIRE(pipeline->next(1.0, batch) == Next::kBatch);
  const int code = in_child([&] {
    ::alarm(20);  // the fault was to wait for ever
    int refused = 0;
    const std::vector<std::function<void()>> calls = {
        [&] { pipeline->next(1.0, batch); }, [&] { pipeline->state(); },
        [&] { pipeline->restore({}); },      [&] { pipeline->set_beta(0.5); },
        [&] { pipeline->stats(); },          [&] { pipeline->batches_per_epoch(); }};
    for (const auto& call : calls) {
      try {
        call();
      } catch (const gear::base::InvalidArgument& error) {
        refused += std::string(error.what()).find("forked") != std::string::npos ? 1 : 0;
      }
    }
    pipeline.reset();
#ifdef __SANITIZE_THREAD__  // ends a forked child that starts a thread
    return refused;
#else
    const std::unique_ptr<Pipeline> own = make_pipeline(shard, {*shard, options});
    Batch other;
    return own->next(1.0, other) == Next::kBatch && wrong_rows(other) == 0 ? refused : 100;
#endif
  });
  CHECK(code == 6);
  CHECK(pipeline->next(1.0, batch) == Next::kBatch);
}

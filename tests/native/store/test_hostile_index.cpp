// Index sections that fit their checksum and are wrong all the same: refused or usable, never a
// crash (run under AddressSanitizer).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/checkpoint/snapshot_index.h"
#include "store/writer.h"

using namespace gear::store;
using gear::base::DType;

namespace {

const std::byte kRow[4] = {};

std::shared_ptr<Shard> make_shard(Evict evict, uint32_t max_times_sampled) {
  ShardOptions options;
  options.page_steps = 3;
  options.capacity = 30;  // two pages stay free
  options.evict = evict;
  options.max_times_sampled = max_times_sampled;
  auto shard = std::make_shared<Shard>(Schema({{"x", {}, DType::kF32}}), options);
  gear::store::Writer writer(shard);
  const std::byte* columns[] = {kRow};
  for (const uint64_t steps : {5, 1, 3, 2}) {
    for (uint64_t i = 0; i < steps; ++i) {
      writer.append(columns, 1, {});
    }
    writer.end_episode(EpisodeState::kTerminated, steps == 1 ? 2.0 : -1.0, columns);
  }
  for (int i = 0; i < 4; ++i) {
    writer.append(columns, 1, {});
  }
  const auto lock = shard->lock();
  const uint32_t open = shard->index().state().newest;
  // Leaves the writer nothing to end: the episode stays open, as in a checkpoint of a running job.
  SavedState saved = saved_state(shard->index());
  saved.state.episodes[open].has_writer = false;
  return std::make_shared<Shard>(shard->schema(), options, std::move(saved));
}

// Uses an index in every way that a loaded buffer would; what it refuses, it refuses as an Error.
void use(Index& index) {
  const auto steps = index.steps(0)->weights(0.6);
  const auto episodes = index.head_weights(0.6);
  for (uint32_t p = 0; p < index.options().num_pages; ++p) {
    for (uint64_t k = index.steps().counts()[p]; k > 0; --k) {
      index.mark_sampled({p, index.steps().nth(p, 0)}, Unit::kStep);
    }
  }
  index.deliver(index.take_draws());
  const auto reaching = index.steps(2)->weights(0.6);
  std::vector<uint64_t> open;
  for (uint32_t e = index.state().oldest; e != kNone; e = index.episode(e).newer) {
    if (index.episode(e).state == EpisodeState::kOpen) {
      open.push_back(index.episode(e).uid);
    }
  }
  for (uint64_t i = 0; i < 2 * index.options().num_pages; ++i) {
    uint32_t e = i < open.size() && open[i] != 0 ? index.adopt_episode(open[i]) : kNone;
    for (int step = 0; step < 4; ++step) {
      if (!has_room(index, e)) {
        index.next_page(e);
        index.attach_page(e);
      }
      const float priority = 1.0F;
      index.append(e, {&priority, 1});
    }
    index.end_episode(e, EpisodeState::kTruncated, -1.0, 0);
  }
}

// Whether the bytes make an index. Any outcome but an Error of the core ends the test.
bool accepted(const std::vector<std::byte>& bytes) {
  try {
    SavedIndex saved = decode_index(bytes);
    Index index(saved.options, std::move(saved.index));
    use(index);
    return true;
  } catch (const gear::base::CorruptData&) {
  } catch (const gear::base::Error&) {
  }
  return false;
}

}  // namespace

TEST_CASE("an index section cut anywhere is refused as corrupt") {
  const auto shard = make_shard(Evict::kFifo, 2);
  const std::vector<std::byte> good = encode_index(*shard);
  CHECK(accepted(good));
  for (size_t length = 0; length < good.size(); ++length) {
    CAPTURE(length);
    REQUIRE_THROWS_AS(decode_index({good.data(), length}), gear::base::CorruptData);
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK_THROWS_AS(decode_index(longer), gear::base::CorruptData);
}

TEST_CASE("an index section with a flipped bit is refused or usable") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    const std::vector<std::byte> good = encode_index(*make_shard(evict, 2));
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::vector<std::byte> bad = good;
        bad[i] ^= static_cast<std::byte>(1 << bit);
        CAPTURE(i);
        CAPTURE(bit);
        REQUIRE_NOTHROW(accepted(bad));
      }
    }
  }
}

TEST_CASE("an index section with wild numbers is refused or usable") {
  const std::vector<std::byte> good = encode_index(*make_shard(Evict::kLifo, 2));
  constexpr uint64_t kWild[] = {0,
                                1,
                                0xffff,
                                0xffffffff,
                                0x7ff8000000000000,  // NaN
                                ~uint64_t{0} - 2,
                                ~uint64_t{0}};
  for (size_t i = 0; i + 8 <= good.size(); ++i) {
    for (const uint64_t wild : kWild) {
      for (const size_t bytes : {size_t{4}, size_t{8}}) {
        std::vector<std::byte> bad = good;
        std::memcpy(bad.data() + i, &wild, bytes);
        CAPTURE(i);
        CAPTURE(wild);
        CAPTURE(bytes);
        REQUIRE_NOTHROW(accepted(bad));
      }
    }
  }
}

TEST_CASE("states that contradict themselves are refused") {
  const auto shard = make_shard(Evict::kLifo, 0);
  const IndexOptions options = shard->index().options();
  const auto expect_refused = [&](auto change) {
    SavedState saved = saved_state(shard->index());
    change(saved.state);
    CHECK_THROWS_AS(check_saved(options, saved), gear::base::CorruptData);
  };
  const uint32_t ended = shard->index().state().oldest;
  const uint32_t open = shard->index().state().newest;
  const uint32_t tail = shard->index().episode(ended).tail;
  REQUIRE_NOTHROW(check_saved(options, saved_state(shard->index())));
  expect_refused([&](IndexState& s) { s.free_pages.pop_back(); });
  expect_refused([&](IndexState& s) { s.free_pages.push_back(tail); });
  expect_refused([&](IndexState& s) { s.num_steps += 1; });
  expect_refused([&](IndexState& s) { s.num_episodes += 1; });
  expect_refused([&](IndexState& s) { s.pages[tail].rows += 1; });
  expect_refused([&](IndexState& s) { s.pages[tail].previous = kNone; });
  expect_refused([&](IndexState& s) { s.pages[tail].next = s.episodes[ended].head; });
  expect_refused([&](IndexState& s) { s.episodes[ended].newer = ended; });
  expect_refused([&](IndexState& s) { s.episodes[ended].uid = s.next_uid; });
  expect_refused([&](IndexState& s) { s.episodes[ended].weight = std::nan(""); });
  expect_refused([&](IndexState& s) { s.episodes[ended].weight = HUGE_VAL; });
  for (const float wrong : {NAN, HUGE_VALF, -5.0F}) {
    expect_refused([&](IndexState& s) { s.max_priority = wrong; });
  }
  expect_refused([&](IndexState& s) { s.next_uid = uint64_t{1} << 63; });
  expect_refused([&](IndexState& s) { s.counters.steps_inserted += 1; });
  expect_refused([&](IndexState& s) { s.counters.steps_sampled = ~uint64_t{0}; });
  expect_refused([&](IndexState& s) {  // steps that nobody can have inserted
    s.episodes[ended].begin += uint64_t{1} << 40;
    s.episodes[ended].end += uint64_t{1} << 40;
    for (uint32_t p = s.episodes[ended].head; p != kNone; p = s.pages[p].next) {
      s.pages[p].first_step += uint64_t{1} << 40;
    }
  });
  expect_refused([&](IndexState& s) { s.episodes[ended].priority_sum += 1; });
  for (const float wrong : {NAN, HUGE_VALF, -1.0F}) {
    SavedState saved = saved_state(shard->index());
    saved.priorities[0] = wrong;
    CHECK_THROWS_AS(check_saved(options, saved), gear::base::CorruptData);
    saved = saved_state(shard->index());
    saved.priorities.pop_back();
    CHECK_THROWS_AS(check_saved(options, saved), gear::base::CorruptData);
  }
  expect_refused([&](IndexState& s) { s.episodes[open].closing_columns = 1; });
  expect_refused([&](IndexState& s) {  // ended, without a step
    Episode empty;
    empty.uid = s.next_uid++;
    empty.state = EpisodeState::kTerminated;
    empty.older = s.newest;
    s.episodes[s.newest].newer = static_cast<uint32_t>(s.episodes.size());
    s.newest = static_cast<uint32_t>(s.episodes.size());
    s.episodes.push_back(empty);
    ++s.num_episodes;
  });
}

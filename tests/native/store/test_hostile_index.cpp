// Index sections that fit their checksum and are wrong all the same: refused or usable, never a
// crash (run under AddressSanitizer).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "index_view.h"
#include "store/checkpoint/index_check.h"
#include "store/checkpoint/snapshot_index.h"
#include "store/writing/writer.h"

using namespace gear::store;
using gear::base::DType;

namespace {

const std::byte kRow[4] = {};

// Side by side, another writer's steps come between, so that the order of pages is saved, too.
std::shared_ptr<Shard> make_shard(Evict evict, uint32_t max_times_sampled, bool side_by_side) {
  ShardOptions options;
  options.page_steps = 3;
  options.capacity = side_by_side ? 36 : 30;  // two pages stay free
  options.evict = evict;
  options.max_times_sampled = max_times_sampled;
  auto shard = std::make_shared<Shard>(Schema({{"x", {}, DType::kF32}}), options);
  gear::store::Writer writer(shard);
  gear::store::Writer other(shard);
  const std::byte* columns[] = {kRow};
  uint64_t count = 0;
  const auto append = [&] {
    writer.append(columns, 1, {});
    if (side_by_side && count++ % 3 == 0) {
      other.append(columns, 1, {});
    }
  };
  for (const uint64_t steps : {5, 1, 3, 2}) {
    for (uint64_t i = 0; i < steps; ++i) {
      append();
    }
    writer.end_episode(EpisodeState::kTerminated, steps == 1 ? 2.0 : -1.0, columns);
  }
  for (int i = 0; i < 4; ++i) {
    append();
  }
  const auto lock = shard->lock();
  // Leaves the writers nothing to end: their episodes stay open, as in a checkpoint of a running
  // job.
  IndexState saved = shard->index().state();
  for (Episode& episode : saved.episodes) {
    episode.has_writer = false;
  }
  return std::make_shared<Shard>(shard->schema(), options, std::move(saved),
                                 saved_slots(shard->index()));
}

// Its index section: of format 3 with a priority for another rank, else of format 1.
std::vector<std::byte> section(Evict evict, uint32_t max_times_sampled, bool side_by_side) {
  const auto shard = make_shard(evict, max_times_sampled, side_by_side);
  std::vector<KeptUpdate> kept;
  if (side_by_side) {
    kept.push_back({7, 2.0F});
  }
  REQUIRE(shard->index().state().free_pages.size() == 2);
  REQUIRE(format_of(shard->index().state(), kept) == (side_by_side ? 3 : 1));
  return encode_index(*shard, kept);
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
    Index index(saved.options, std::move(saved.state), saved.slots);
    use(index);
    return true;
  } catch (const gear::base::CorruptData&) {
  } catch (const gear::base::Error&) {
  }
  return false;
}

}  // namespace

TEST_CASE("an index section cut anywhere is refused as corrupt") {
  for (const bool side_by_side : {false, true}) {
    const std::vector<std::byte> good = section(Evict::kFifo, 2, side_by_side);
    CHECK(accepted(good));
    const size_t pages = side_by_side ? 10 : 8;
    const size_t order = good.size() - pages * sizeof(uint32_t);
    const size_t kept = order - sizeof(uint64_t) - sizeof(int64_t) - sizeof(float);
    for (size_t length = 0; length < good.size(); ++length) {
      CAPTURE(length);
      if (side_by_side && (length == kept || length == order)) {
        CHECK(accepted({good.begin(), good.begin() + static_cast<ptrdiff_t>(length)}));
        continue;  // formats 1 and 2 end here
      }
      REQUIRE_THROWS_AS(decode_index({good.data(), length}), gear::base::CorruptData);
    }
    std::vector<std::byte> longer = good;
    longer.push_back(std::byte{0});
    CHECK_THROWS_AS(decode_index(longer), gear::base::CorruptData);
  }
}

TEST_CASE("an index section with a flipped bit is refused or usable") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    for (const bool side_by_side : {false, true}) {
      const std::vector<std::byte> good = section(evict, 2, side_by_side);
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
}

TEST_CASE("an index section with wild numbers is refused or usable") {
  constexpr uint64_t kWild[] = {0,
                                1,
                                0xffff,
                                0xffffffff,
                                0x7ff8000000000000,  // NaN
                                ~uint64_t{0} - 2,
                                ~uint64_t{0}};
  for (const bool side_by_side : {false, true}) {
    const std::vector<std::byte> good =
        section(side_by_side ? Evict::kFifo : Evict::kLifo, 2, side_by_side);
    for (size_t i = 0; i + 4 <= good.size(); ++i) {
      for (const uint64_t wild : kWild) {
        for (const size_t bytes : {size_t{4}, size_t{8}}) {
          if (i + bytes > good.size()) {
            continue;
          }
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
}

TEST_CASE("an order of pages that no writers make is refused, and any other is gone by") {
  const std::vector<std::byte> good = section(Evict::kFifo, 0, true);
  const SavedIndex saved = decode_index(good);
  const std::vector<uint32_t> pages = used_pages(saved.state);
  std::vector<std::vector<uint32_t>> orders{pages};
  std::vector<uint32_t>& saved_order = orders.emplace_back(pages);
  std::ranges::sort(saved_order, {}, [&](uint32_t p) { return saved.state.arrived[p]; });
  REQUIRE(saved_order != pages);
  const auto with = [&](const std::vector<uint32_t>& order) {
    std::vector<std::byte> bytes = good;
    const size_t size = order.size() * sizeof(uint32_t);
    std::memcpy(bytes.data() + bytes.size() - size, order.data(), size);
    return bytes;
  };
  for (size_t i = 0; i < pages.size(); ++i) {
    for (const uint64_t wrong : {uint64_t{saved.state.free_pages[0]}, saved.options.num_pages,
                                 ~uint64_t{0}, uint64_t{pages[i == 0]}}) {
      std::vector<uint32_t> order = pages;
      order[i] = static_cast<uint32_t>(wrong);
      CAPTURE(i);
      CAPTURE(wrong);
      REQUIRE_THROWS_AS(decode_index(with(order)), gear::base::CorruptData);
    }
    for (size_t j = 0; j < i; ++j) {
      std::vector<uint32_t>& swapped = orders.emplace_back(pages);
      std::swap(swapped[i], swapped[j]);
    }
  }
  for (const std::vector<uint32_t>& order : orders) {
    const auto position = [&](uint32_t p) { return std::ranges::find(order, p) - order.begin(); };
    const bool in_time = std::ranges::all_of(pages, [&](uint32_t p) {
      const uint32_t previous = saved.state.pages[p].previous;
      return previous == kNone || position(previous) < position(p);
    });
    if (!in_time) {
      REQUIRE_THROWS_AS(decode_index(with(order)), gear::base::CorruptData);
      continue;
    }
    SavedIndex again = decode_index(with(order));
    Index index(again.options, std::move(again.state), again.slots);
    std::vector<uint32_t> going;  // fifo: in this order, but for the last pages of open episodes
    std::ranges::copy_if(order, std::back_inserter(going), [&](uint32_t p) {
      return index.page(p).next != kNone || index.episode(index.page(p).episode).ended();
    });
    for (const uint32_t p : going) {
      if (index.page(p).generation != saved.state.pages[p].generation) {
        continue;  // that of a closing step alone, which went with the one before it
      }
      while (!index.state().free_pages.empty()) {
        uint32_t e = kNone;
        const float priority = 1.0F;
        index.next_page(e);
        index.attach_page(e);
        index.append(e, {&priority, 1});
      }
      uint32_t e = kNone;
      REQUIRE(index.next_page(e) == p);
    }
  }
}

TEST_CASE("states that contradict themselves are refused") {
  const auto shard = make_shard(Evict::kLifo, 0, false);
  const IndexOptions options = shard->index().options();
  const Slots good = saved_slots(shard->index());
  const auto expect_refused = [&](auto change) {
    IndexState state = shard->index().state();
    change(state);
    CHECK_THROWS_AS(check_saved(options, state, good), gear::base::CorruptData);
  };
  const uint32_t ended = shard->index().state().oldest;
  const uint32_t open = shard->index().state().newest;
  const uint32_t tail = shard->index().episode(ended).tail;
  REQUIRE_NOTHROW(check_saved(options, shard->index().state(), good));
  expect_refused([&](IndexState& s) { s.free_pages.pop_back(); });
  expect_refused([&](IndexState& s) { s.free_pages.push_back(tail); });
  expect_refused([&](IndexState& s) { s.num_steps += 1; });
  expect_refused([&](IndexState& s) { s.num_episodes += 1; });
  expect_refused([&](IndexState& s) { s.pages[tail].rows += 1; });
  expect_refused([&](IndexState& s) { s.pages[tail].previous = kNone; });
  expect_refused([&](IndexState& s) { s.pages[tail].next = s.episodes[ended].head; });
  expect_refused([&](IndexState& s) { s.arrived[tail] = 0; });
  expect_refused([&](IndexState& s) { s.arrived[tail] = s.arrived[s.episodes[ended].head]; });
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
  expect_refused([&](IndexState& s) { s.max_priority /= 2; });  // a step has a larger one
  expect_refused([&](IndexState& s) { s.max_weight /= 2; });    // an episode has
  for (const float wrong : {NAN, HUGE_VALF, -1.0F}) {
    Slots bad = good;
    bad.priorities[0] = wrong;
    CHECK_THROWS_AS(check_saved(options, shard->index().state(), bad), gear::base::CorruptData);
    bad = good;
    bad.priorities.pop_back();
    CHECK_THROWS_AS(check_saved(options, shard->index().state(), bad), gear::base::CorruptData);
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

// Which page goes: random histories, against a model that looks at every page each time.
#include <doctest/doctest.h>

#include <vector>

#include "base/errors.h"
#include "base/numbers/philox.h"
#include "index_view.h"
#include "store/index/index.h"

using namespace gear::store;

namespace {

constexpr uint64_t kPageSteps = 3;
constexpr size_t kWriters = 6;

// The head page that goes next, by the order in which the rule says it; kNone: none can.
uint32_t slow_victim(const Index& index, uint32_t requester, bool closing) {
  const IndexState& state = index.state();
  uint32_t found = kNone;
  const auto take_least = [&](const auto& eligible, const auto& key) {
    for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
      if (eligible(e) && (found == kNone || key(e) < key(found))) {
        found = e;
      }
    }
    return found != kNone;
  };
  const auto ended = [&](uint32_t e) { return state.episodes[e].ended(); };
  const auto has_surplus = [&](uint32_t e) {
    return ended(e) || state.episodes[e].head != state.episodes[e].tail;
  };
  const auto gives = [&](uint32_t e) { return has_surplus(e) || (e == requester && !closing); };
  const auto arrival = [&](uint32_t e) { return state.arrived[state.episodes[e].head]; };
  const auto age = [&](uint32_t e) { return -static_cast<double>(state.episodes[e].uid); };
  const auto priority = [&](uint32_t e) { return episode_priority(state, state.episodes[e]); };
  const Evict evict = index.options().evict;
  const bool is_found = (evict == Evict::kFifo && take_least(gives, arrival)) ||
                        (evict == Evict::kLifo && take_least(ended, age)) ||
                        (evict == Evict::kLowestPriority && take_least(ended, priority));
  if (is_found || evict == Evict::kFifo) {
    return is_found ? state.episodes[found].head : kNone;
  }
  if (requester != kNone && has_surplus(requester)) {
    return state.episodes[requester].head;
  }
  return take_least(has_surplus, arrival) || take_least(gives, arrival) ? state.episodes[found].head
                                                                        : kNone;
}

}  // namespace

TEST_CASE("the page that goes is the one that a look at all of them finds") {
  for (const Evict evict : {Evict::kFifo, Evict::kLifo, Evict::kLowestPriority}) {
    for (const uint64_t pages : {kWriters, kWriters + 1, 3 * kWriters}) {
      CAPTURE(static_cast<int>(evict));
      CAPTURE(pages);
      Index index({pages, kPageSteps, 0, evict, 0});
      std::vector<uint32_t> open(kWriters, kNone);
      uint64_t counter = 0;
      const auto random = [&](uint64_t range) {
        return gear::base::scale_to(gear::base::philox(5, 0, counter++), range);
      };
      uint64_t evictions = 0;
      for (int step = 0; step < 5000; ++step) {
        uint32_t& e = open[random(kWriters)];
        const bool closes = e != kNone && random(8) == 0;
        const bool needs_page = !has_room(index, e) && (!closes || random(2) == 0);
        bool has_page = true;
        if (needs_page && index.state().free_pages.empty()) {
          const uint32_t victim = slow_victim(index, e, closes);
          has_page = victim != kNone;
          const uint32_t generation = has_page ? index.page(victim).generation : 0;
          if (has_page) {
            index.next_page(e, closes);
            REQUIRE(index.page(victim).generation == generation + 1);
            ++evictions;
          } else {
            REQUIRE_THROWS_AS(index.next_page(e, closes), gear::base::OutOfMemory);
          }
        }
        if (needs_page && has_page) {
          index.next_page(e, closes);
          index.attach_page(e);
        }
        if (!has_page && !closes) {
          continue;
        }
        if (closes) {
          index.end_episode(e, EpisodeState::kTerminated, -1.0, has_room(index, e) ? 1 : 0);
          e = kNone;
        } else {
          const auto priority = static_cast<float>(random(100));
          index.append(e, {&priority, 1});
        }
      }
      CHECK(evictions > 300);
    }
  }
}

TEST_CASE(
    "but under fifo, another's page that can be spared goes before the only one of one's own") {
  for (const Evict evict : {Evict::kLifo, Evict::kLowestPriority}) {
    Index index({3, 2, 0, evict, 0});
    const std::vector<float> priorities{1, 1};
    uint32_t old = kNone;
    uint32_t grown = kNone;
    const auto fill = [&](uint32_t& e) {
      index.next_page(e);
      index.attach_page(e);
      index.append(e, priorities);
    };
    fill(old);
    fill(grown);
    fill(grown);
    index.next_page(old);
    CHECK(index.episode(old).begin == 0);
    CHECK(index.state().num_steps == 4);
    CHECK(index.episode(grown).head == index.episode(grown).tail);
  }
}

#include "store/checkpoint/index_check.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "store/drawable/drawables.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

// Counts of steps and episodes: what a run reaches in centuries, with room to add to.
constexpr uint64_t kMostCounted = uint64_t{1} << 62;

void require(bool holds, const char* what, uint64_t where) {
  if (holds) {
    return;
  }
  throw base::CorruptData(
      base::cat("[buffer] the saved index contradicts itself: ", what, " (at ", where, ")"));
}

bool is_priority(double value) { return std::isfinite(value) && value >= 0; }

void check_numbers(const IndexState& state) {
  const Counters& counters = state.counters;
  require(is_priority(static_cast<double>(state.max_priority)), "largest priority", 0);
  require(is_priority(static_cast<double>(state.max_weight)), "largest weight of an episode", 0);
  require(state.next_uid >= 1 && state.next_uid < kMostCounted, "number of the next episode",
          state.next_uid);
  for (const uint64_t count : {counters.steps_inserted, counters.steps_sampled,
                               counters.stale_updates, counters.saturated_weights}) {
    require(count < kMostCounted, "a counter", count);
  }
  require(counters.steps_evicted <= counters.steps_inserted &&
              counters.steps_inserted - counters.steps_evicted == state.num_steps,
          "number of steps", state.num_steps);
}

// Goes through episodes and their pages as they are linked, once.
class Walker {
 public:
  Walker(const IndexOptions& options, const IndexState& state, const Slots& slots)
      : options_(options), state_(state), slots_(slots), seen_(options.num_pages, false) {}

  void check() {
    check_free_pages();
    uint32_t older = kNone;
    for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
      require(e < state_.episodes.size() && num_episodes_ < state_.episodes.size(),
              "order of episodes", e);
      check_episode(e, older);
      older = e;
    }
    require(state_.newest == older && num_episodes_ == state_.num_episodes, "number of episodes",
            num_episodes_);
    require(num_used_ + state_.free_pages.size() == options_.num_pages, "number of pages in use",
            num_used_);
    require(num_steps_ == state_.num_steps, "number of steps", num_steps_);
    const uint64_t slots = num_used_ * options_.page_steps;
    require(slots_.priorities.size() == slots, "number of priorities", slots_.priorities.size());
    require(slots_.times_sampled.size() == (options_.max_times_sampled > 0 ? slots : 0),
            "number of sample counts", slots_.times_sampled.size());
  }

 private:
  void check_free_pages() {
    for (const uint32_t p : state_.free_pages) {
      require(p < options_.num_pages && !seen_[p], "list of free pages", p);
      seen_[p] = true;
      const Page& page = state_.pages[p];
      require(page.episode == kNone && page.rows == 0 && page.anchors == 0, "a free page is in use",
              p);
    }
  }

  void check_episode(uint32_t e, uint32_t older) {
    const Episode& episode = state_.episodes[e];
    ++num_episodes_;
    require(episode.uid > 0 && episode.uid < state_.next_uid && episode.older == older,
            "order of episodes", e);
    require(episode.begin <= episode.end && episode.end <= state_.counters.steps_inserted,
            "an episode's steps", e);
    require(std::isfinite(episode.weight) && as_priority(episode.weight) <= state_.max_weight,
            "an episode's weight", e);
    require(episode.ended() ? episode.begin < episode.end : episode.closing_columns == 0,
            "how an episode ended", e);
    require(episode.begin % options_.page_steps == 0 && episode.head != kNone,
            "where an episode begins", e);
    num_steps_ += episode.end - episode.begin;
    uint64_t step = episode.begin;
    uint32_t previous = kNone;
    for (uint32_t p = episode.head; p != kNone; p = state_.pages[p].next) {
      require(p < options_.num_pages && !seen_[p], "pages of an episode", p);
      seen_[p] = true;
      const Page& page = state_.pages[p];
      require(page.episode == e && page.previous == previous && page.first_step == step &&
                  step % options_.page_steps == 0 && page.rows <= options_.page_steps &&
                  (page.next == kNone || page.rows == options_.page_steps),
              "a page of an episode", p);
      require(state_.arrived[p] > (previous == kNone ? 0 : state_.arrived[previous]),
              "order in which pages were filled", p);
      require(page.anchors == std::min<uint64_t>(page.rows, episode.end - page.first_step),
              "steps of a page", p);
      check_priorities(p);
      step += page.rows;
      previous = p;
    }
    require(episode.tail == previous, "last page of an episode", e);
    require(step == episode.end + (episode.closing_columns != 0), "length of an episode", e);
  }

  void check_priorities(uint32_t p) {
    const uint64_t first = num_used_++ * options_.page_steps;
    require(first + options_.page_steps <= slots_.priorities.size(), "number of priorities", p);
    for (uint64_t row = 0; row < options_.page_steps; ++row) {
      const float value = slots_.priorities[first + row];
      if (!is_priority(value) || value > state_.max_priority) [[unlikely]] {
        require(false, "a step's priority", first + row);
      }
    }
  }

  const IndexOptions& options_;
  const IndexState& state_;
  const Slots& slots_;
  std::vector<bool> seen_;
  uint64_t num_used_ = 0;
  uint64_t num_episodes_ = 0;
  uint64_t num_steps_ = 0;
};

}  // namespace

void check_saved(const IndexOptions& options, const IndexState& state, const Slots& slots) {
  require(state.pages.size() == options.num_pages, "number of pages", state.pages.size());
  require(state.episodes.size() <= options.num_pages, "number of episodes", state.episodes.size());
  check_numbers(state);
  Walker(options, state, slots).check();
}

}  // namespace gear::store

// Whether a state that came from outside (a checkpoint) agrees with itself.
#include <cmath>

#include "base/errors.h"
#include "store/index/fixed_point.h"
#include "store/index/index.h"

namespace gear::store {
namespace {

void require(bool holds, const char* what, uint64_t where) {
  if (holds) {
    return;
  }
  throw base::CorruptData(
      base::cat("[store] the saved index contradicts itself: ", what, " (at ", where, ")"));
}

}  // namespace

void Index::check_state() const {
  const uint64_t num_pages = options_.num_pages;
  const uint64_t page_steps = options_.page_steps;
  const auto& pages = state_.pages;
  const auto& episodes = state_.episodes;
  require(pages.size() == num_pages, "number of pages", pages.size());
  require(episodes.size() <= uint64_t{kNone}, "number of episodes", episodes.size());
  require(state_.priorities.size() == num_slots(), "number of priorities",
          state_.priorities.size());
  require(state_.times_sampled.size() == (options_.max_times_sampled > 0 ? num_slots() : 0),
          "number of sample counts", state_.times_sampled.size());

  std::vector<bool> seen(num_pages, false);
  for (uint32_t p : state_.free_pages) {
    require(p < num_pages && !seen[p], "list of free pages", p);
    seen[p] = true;
    require(pages[p].episode == kNone && pages[p].rows == 0 && pages[p].anchors == 0,
            "a free page is in use", p);
  }
  uint64_t num_used = state_.free_pages.size();
  uint64_t num_episodes = 0;
  uint64_t num_steps = 0;
  uint32_t older = kNone;
  for (uint32_t e = state_.oldest; e != kNone; e = episodes[e].newer) {
    require(e < episodes.size() && num_episodes < episodes.size(), "order of episodes", e);
    const Episode& episode = episodes[e];
    ++num_episodes;
    require(episode.uid > 0 && episode.uid < state_.next_uid && episode.older == older,
            "order of episodes", e);
    require(episode.begin <= episode.end && episode.anchors_end <= episode.end &&
                episode.anchors_end >= episode.begin && !std::isnan(episode.weight),
            "an episode's steps", e);
    const bool open = episode.state == EpisodeState::kOpen;
    require(open ? episode.closing_columns == 0
                 : episode.head != kNone && episode.begin < episode.end &&
                       episode.anchors_end == episode.end,
            "how an episode ended", e);
    require(
        episode.begin % page_steps == 0 && (episode.head != kNone || episode.begin == episode.end),
        "where an episode begins", e);
    uint64_t priority_sum = 0;
    older = e;
    num_steps += episode.end - episode.begin;
    uint64_t step = episode.begin;
    uint32_t previous = kNone;
    for (uint32_t p = episode.head; p != kNone; p = pages[p].next) {
      require(p < num_pages && !seen[p], "pages of an episode", p);
      seen[p] = true;
      ++num_used;
      const Page& page = pages[p];
      const bool last = page.next == kNone;
      require(page.episode == e && page.previous == previous && page.first_step == step &&
                  step % page_steps == 0 && page.rows <= page_steps &&
                  (last || page.rows == page_steps),
              "a page of an episode", p);
      const uint64_t steps = std::min<uint64_t>(page.rows, episode.end - page.first_step);
      const uint64_t published =
          episode.anchors_end <= page.first_step ? 0 : episode.anchors_end - page.first_step;
      require(page.anchors == std::min(steps, published) && page.spent <= page.anchors,
              "steps offered to samplers", p);
      for (uint32_t row = 0; row < page.rows; ++row) {
        const float value = state_.priorities[slot({p, row})];
        require(std::isfinite(value) && std::signbit(value) == (row >= page.anchors),
                "a step's priority", slot({p, row}));
        if (row < steps) {
          priority_sum += priority_units(std::fabs(value));
        }
      }
      step += page.rows;
      previous = p;
    }
    require(priority_sum == episode.priority_sum, "sum of an episode's priorities", e);
    require(episode.tail == previous, "last page of an episode", e);
    require(step == episode.end + (episode.closing_columns != 0), "length of an episode", e);
    const bool before_any = episode.anchors_end == episode.begin;
    require(before_any ? (episode.publish == kNone)
                       : (episode.publish < num_pages && pages[episode.publish].episode == e &&
                          episode.anchors_end > pages[episode.publish].first_step &&
                          episode.anchors_end <= pages[episode.publish].first_step + page_steps),
            "page offered last", e);
  }
  require(state_.newest == older && num_episodes == state_.num_episodes, "number of episodes",
          num_episodes);
  require(num_used == num_pages, "number of pages in use", num_used);
  require(num_steps == state_.num_steps, "number of steps", num_steps);
}

}  // namespace gear::store

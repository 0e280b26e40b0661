#include "store/index/index.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/threads/touch.h"
#include "store/index/fixed_point.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

IndexState empty_state(const IndexOptions& options) {
  const uint64_t slots = options.num_pages * options.page_steps;
  IndexState state;
  state.pages.resize(options.num_pages);
  for (uint64_t page = 0; page < options.num_pages; ++page) {
    state.free_pages.push_back(static_cast<uint32_t>(page));
  }
  state.priorities.assign(slots, -0.0F);
  if (options.max_times_sampled > 0) {
    state.times_sampled.assign(slots, 0);
  }
  return state;
}

const IndexOptions& checked(const IndexOptions& options) {
  check_options(options);
  return options;
}

}  // namespace

void check_options(const IndexOptions& options) {
  if (options.num_pages == 0 ||
      options.num_pages > ((uint64_t{1} << 32) - 1) / options.page_steps) {
    throw base::InvalidArgument(
        base::cat("[store] ", options.num_pages, " pages of ", options.page_steps,
                  " steps: a rank holds 1 page to 2^32 - 1 steps; change capacity"));
  }
  if (options.max_times_sampled > 65535) {
    throw base::InvalidArgument(base::cat("[store] max_times_sampled ", options.max_times_sampled,
                                          ": 1 to 65535, or none, are allowed"));
  }
}

Index::Index(const IndexOptions& options) : Index(options, empty_state(checked(options))) {}

Index::Index(const IndexOptions& options, IndexState state)
    : options_(checked(options)),
      state_(std::move(state)),
      anchors_(options.num_pages),
      heads_(options.num_pages),
      scratch_(options.page_steps),
      evicted_at_(options.num_pages, 0),
      episode_priorities_used_(options.evict == Evict::kLowestPriority) {
  check_state();
  for (uint32_t e = static_cast<uint32_t>(state_.episodes.size()); e-- > 0;) {
    if (state_.episodes[e].uid == 0) {
      free_episodes_.push_back(e);
    }
  }
  priority_key_.resize(state_.episodes.size(), -1.0);
  for (uint32_t p = 0; p < options_.num_pages; ++p) {
    const Page& page = state_.pages[p];
    if (page.anchors > page.spent) {
      anchors_.set(p, static_cast<uint64_t>(page.anchors - page.spent));
    }
  }
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh_episode(e);
  }
}

uint64_t Index::bytes() const {
  uint64_t total = state_.pages.size() * sizeof(Page) + state_.episodes.size() * sizeof(Episode) +
                   state_.priorities.size() * sizeof(float) +
                   state_.times_sampled.size() * sizeof(uint16_t) + anchors_.bytes() +
                   heads_.bytes() + evicted_at_.size() * sizeof(uint64_t);
  for (const auto& weights : weight_trees_) {
    total += weights->tree.bytes();
  }
  return total;
}

int64_t Index::id(Anchor anchor, Unit unit) const {
  return StepId{static_cast<uint32_t>(slot(anchor)),
                state_.pages[anchor.page].generation & StepId::kGenerationMask, options_.owner,
                unit == Unit::kEpisode}
      .pack();
}

bool Index::find(StepId id, Anchor& anchor) const {
  anchor = anchor_of(id.slot);
  const Page& page = state_.pages[anchor.page];
  if (page.episode == kNone) {
    return false;
  }
  const Episode& episode = state_.episodes[page.episode];
  return is_stored(id, anchor.row, page, episode.begin, episode.end);
}

Anchor Index::resolve(int64_t packed) const {
  const StepId id = StepId::unpack(packed);
  if (packed < 0 || id.owner != options_.owner || id.slot >= num_slots()) {
    throw base::InvalidArgument(
        base::cat("[store] id ", packed, " is not of this buffer: use ids of its own batches"));
  }
  Anchor anchor{};
  if (!find(id, anchor)) {
    throw base::InvalidArgument(base::cat(
        "[store] id ", packed, " names a step that has been evicted: collect ids of stored steps"));
  }
  return anchor;
}

double Index::episode_priority(const Episode& episode) const {
  if (episode.weight >= 0) {
    return episode.weight;
  }
  if (episode.end == episode.begin) {
    return 0;
  }
  return static_cast<double>(episode.priority_sum) /
         static_cast<double>((episode.end - episode.begin) << kWeightFractionBits);
}

bool Index::has_room(uint32_t e) const {
  const Episode& episode = state_.episodes[e];
  return episode.tail != kNone && state_.pages[episode.tail].rows < options_.page_steps;
}

uint32_t Index::open_episode() {
  uint32_t e = static_cast<uint32_t>(state_.episodes.size());
  if (!free_episodes_.empty()) {
    e = free_episodes_.back();
    free_episodes_.pop_back();
  } else {
    state_.episodes.emplace_back();
    priority_key_.push_back(-1.0);
  }
  Episode& episode = state_.episodes[e] = Episode{};
  episode.uid = state_.next_uid++;
  episode.older = state_.newest;
  (episode.older == kNone ? state_.oldest : state_.episodes[episode.older].newer) = e;
  state_.newest = e;
  ++state_.num_episodes;
  episode.has_writer = true;
  episode_weight_changes(e);
  return e;
}

uint32_t Index::adopt_episode(uint64_t uid) {
  for (uint32_t e = state_.newest; e != kNone; e = state_.episodes[e].older) {
    Episode& episode = state_.episodes[e];
    if (episode.uid != uid) {
      continue;
    }
    if (ended(episode) || episode.has_writer) {
      throw base::InvalidArgument(
          base::cat("[store] episode ", uid, ended(episode) ? " has ended" : " has a writer",
                    ": only an open episode without a writer can be continued"));
    }
    episode.has_writer = true;
    return e;
  }
  throw base::InvalidArgument(base::cat("[store] no episode ", uid,
                                        ": continue one of buffer.episodes() whose state is open"));
}

uint32_t Index::attach_page(uint32_t e) {
  GEAR_CHECK(!state_.free_pages.empty());
  const uint32_t p = state_.free_pages.front();
  state_.free_pages.pop_front();
  Episode& episode = state_.episodes[e];
  Page& page = state_.pages[p];
  GEAR_CHECK(page.episode == kNone && episode.end % options_.page_steps == 0);
  page_changes(p);
  if (episode.tail != kNone) {
    page_changes(episode.tail);
  }
  page.episode = e;
  page.first_step = episode.end;
  page.previous = episode.tail;
  page.next = kNone;
  (page.previous == kNone ? episode.head : state_.pages[page.previous].next) = p;
  episode.tail = p;
  return p;
}

void Index::append(uint32_t e, std::span<const float> priorities) {
  Episode& episode = state_.episodes[e];
  Page& page = state_.pages[episode.tail];
  GEAR_CHECK(page.rows + priorities.size() <= options_.page_steps);
  page_changes(episode.tail);
  episode_changes(e);
  for (ChangeLog* log : logs_) {
    log->appended(episode.tail, page.rows, priorities);
  }
  float* stored = state_.priorities.data() + slot({episode.tail, page.rows});
  float largest = state_.max_priority;  // in registers: a float that is stored may be any float
  uint64_t sum = 0;
  for (size_t i = 0; i < priorities.size(); ++i) {
    const float priority = priorities[i] < 0 ? largest : priorities[i];
    largest = std::max(largest, priority);
    stored[i] = -std::fabs(priority);
    sum += priority_units(priority);
  }
  state_.max_priority = largest;
  episode.priority_sum += sum;
  page.rows = static_cast<uint16_t>(page.rows + priorities.size());
  episode.end += priorities.size();
  state_.num_steps += priorities.size();
  state_.counters.steps_inserted += priorities.size();
  publish(e);
}

void Index::end_episode(uint32_t e, EpisodeState end_state, double weight,
                        uint64_t closing_columns) {
  Episode& episode = state_.episodes[e];
  GEAR_CHECK(!ended(episode) && end_state != EpisodeState::kOpen);
  episode_weight_changes(e);
  if (closing_columns != 0) {
    page_changes(episode.tail);
    constexpr float kNoPriority[] = {0.0F};  // a closing step has none
    const uint16_t row = state_.pages[episode.tail].rows++;
    for (ChangeLog* log : logs_) {
      log->appended(episode.tail, row, kNoPriority);
    }
  }
  episode.closing_columns = closing_columns;
  episode.weight = weight;
  episode.state = end_state;
  if (episode.begin == episode.end) {
    if (episode.head == kNone) {
      remove_episode(e);
    } else {
      evict_head_page(e);
    }
    return;
  }
  publish(e);
  refresh_episode(e);
  if (!drawable(episode)) {
    spent_episodes_.push_back(e);
    release_spent();
  }
}

uint64_t Index::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    store::check_update(ids[i], priorities[i], i, options_.owner, num_slots());
    const StepId id = StepId::unpack(ids[i]);
    base::touch(&state_.pages[anchor_of(id.slot).page]);
    base::touch(&state_.priorities[id.slot]);
  }
  uint64_t applied = 0;
  taken_slots_.clear();
  taken_priorities_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    const StepId id = StepId::unpack(ids[i]);
    Anchor anchor{};
    if (!find(id, anchor)) {
      ++state_.counters.stale_updates;
      continue;
    }
    if (id.episode) {
      const uint32_t e = state_.pages[anchor.page].episode;
      state_.episodes[e].weight = static_cast<double>(priorities[i]);
      refresh_episode(e);
    } else {
      set_priority(anchor, priorities[i]);
      if (drawable(anchor)) {
        taken_slots_.push_back(slot(anchor));
        taken_priorities_.push_back(priorities[i]);
      }
    }
    ++applied;
  }
  for (const auto& weights : weight_trees_) {
    if (weights->unit != Unit::kStep) {
      continue;
    }
    weights->tree.set_each(taken_slots_, fixed(taken_priorities_, weights->alpha, weights->tree));
  }
  return applied;
}

void Index::set_priority(Anchor anchor, float priority) {
  const uint32_t e = state_.pages[anchor.page].episode;
  float& stored = state_.priorities[slot(anchor)];
  state_.episodes[e].priority_sum += priority_units(priority) - priority_units(std::fabs(stored));
  stored = std::copysign(priority, stored);
  state_.max_priority = std::max(state_.max_priority, priority);
  if (episode_priorities_used_ && state_.episodes[e].weight < 0) {
    refresh_episode(e);
  }
}

void Index::raise_max_priority(float priority) {
  state_.max_priority = std::max(state_.max_priority, priority);
}

void Index::require_lookahead(uint64_t steps) {
  if (steps <= state_.lookahead) {
    return;
  }
  state_.lookahead = steps;
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    const Episode& episode = state_.episodes[e];
    if (ended(episode)) {
      continue;
    }
    retract(e, std::max(episode.begin, episode.end - std::min(episode.end, steps)));
  }
}

std::span<uint64_t> Index::fixed(std::span<const float> priorities, double alpha,
                                 const SumTree& tree) {
  const uint64_t limit = weight_limit(tree.num_leaves());
  if (scratch_.size() < priorities.size()) {
    scratch_.resize(priorities.size());
  }
  const std::span weights(scratch_.data(), priorities.size());
  state_.counters.saturated_weights += fixed_weights(priorities, alpha, limit, weights);
  return weights;
}

}  // namespace gear::store

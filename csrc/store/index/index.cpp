#include "store/index/index.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/errors.h"
#include "base/threads/prefetch.h"
#include "store/drawable/priority_sum.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

const IndexOptions& checked(const IndexOptions& options) {
  check_options(options);
  return options;
}

// Without pages, nothing was saved: all of them are free.
IndexState with_pages(const IndexOptions& options, IndexState state) {
  state.sum_shift = sum_shift(state.max_priority);
  if (state.pages.empty()) {
    state.pages.resize(options.num_pages);
    state.arrived.resize(options.num_pages);
    for (uint64_t page = 0; page < options.num_pages; ++page) {
      state.free_pages.push_back(static_cast<uint32_t>(page));
    }
  }
  return state;
}

void sum_priorities(const IndexOptions& options, IndexState& state, const Slots& slots) {
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    Episode& episode = state.episodes[e];
    episode.priority_sum = 0;
    for (uint32_t p = episode.head; p != kNone; p = state.pages[p].next) {
      episode.priority_sum += summed(
          std::span(slots.priorities).subspan(p * options.page_steps, state.pages[p].anchors),
          state.sum_shift);
    }
  }
}

// Each page's values, from where they are saved to where the page lies, and their sums.
Slots by_slot(const IndexOptions& options, IndexState& state, const Slots& saved) {
  const auto page_steps = static_cast<ptrdiff_t>(options.page_steps);
  const std::vector<uint32_t> pages = used_pages(state);
  const auto place = [&](const auto& from, auto& to) {
    to.assign(options.num_slots(), 0);
    auto values = from.begin();
    for (const uint32_t p : pages) {
      std::copy_n(values, page_steps, to.begin() + p * page_steps);
      values += page_steps;
    }
  };
  Slots slots;
  place(saved.priorities, slots.priorities);
  if (options.max_times_sampled > 0) {
    place(saved.times_sampled, slots.times_sampled);
  }
  sum_priorities(options, state, slots);
  return slots;
}

}  // namespace

void check_options(const IndexOptions& options) {
  if (options.num_pages == 0 ||
      options.num_pages > ((uint64_t{1} << 32) - 1) / options.page_steps) {
    throw base::InvalidArgument(
        base::cat("[buffer] ", options.num_pages, " pages of ", options.page_steps,
                  " steps: a rank holds 1 page to 2^32 - 1 steps; change capacity"));
  }
  if (options.max_times_sampled > 65535) {
    throw base::InvalidArgument(base::cat("[buffer] max_times_sampled ", options.max_times_sampled,
                                          ": 1 to 65535, or none, are allowed"));
  }
}

std::vector<uint32_t> used_pages(const IndexState& state) {
  std::vector<uint32_t> pages;
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    for (uint32_t p = state.episodes[e].head; p != kNone; p = state.pages[p].next) {
      pages.push_back(p);
    }
  }
  return pages;
}

Index::Index(const IndexOptions& options, IndexState saved, const Slots& slots)
    : options_(checked(options)),
      by_page_steps_(static_cast<uint32_t>(options.page_steps)),
      state_(with_pages(options, std::move(saved))),
      slots_(by_slot(options, state_, slots)),
      dirty_(options.num_pages, options.page_steps),
      chains_(options_, state_, slots_),
      drawables_(options_, state_, slots_, dirty_) {
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh(e);
  }
}

uint64_t Index::bytes() const {
  return state_.pages.size() * sizeof(Page) + state_.episodes.size() * sizeof(Episode) +
         slots_.priorities.size() * sizeof(float) + slots_.times_sampled.size() * sizeof(uint16_t) +
         chains_.bytes() + drawables_.bytes();
}

// ---- ids ----

bool Index::find(StepId id, Anchor& anchor) const {
  anchor = anchor_of(id.slot);
  return is_stored(id, anchor.row, state_.pages[anchor.page]);
}

Anchor Index::resolve(int64_t packed) const {
  const StepId id = StepId::unpack(packed);
  if (packed < 0 || id.owner != options_.owner || id.slot >= num_slots()) {
    throw base::InvalidArgument(
        base::cat("[buffer] id ", packed, " is not of this buffer: use ids of its own batches"));
  }
  Anchor anchor{};
  if (!find(id, anchor)) {
    throw base::InvalidArgument(
        base::cat("[buffer] id ", packed,
                  " names a step that has been evicted: collect ids of stored steps"));
  }
  return anchor;
}

float Index::priority(Anchor anchor) const { return slots_.priorities[slot(anchor)]; }

// ---- drawing ----

void Index::mark_sampled(Anchor anchor, Unit unit) {
  ++taken_.draws;
  if (options_.max_times_sampled == 0) {
    return;
  }
  const uint32_t e = state_.pages[anchor.page].episode;
  if (unit == Unit::kEpisode) {
    taken_.uses.push_back({state_.episodes[e].uid, e});
  } else {
    taken_.uses.push_back({static_cast<uint64_t>(id(anchor, unit)), kNone});
  }
  drawables_.sampled(anchor, unit);
}

// The place of what was drawn, if it is still stored.
bool Index::find(const Use& use, Anchor& anchor, Unit& unit) const {
  if (use.episode == kNone) {
    unit = Unit::kStep;
    return find(StepId::unpack(static_cast<int64_t>(use.name)), anchor);
  }
  unit = Unit::kEpisode;
  const Episode& episode = state_.episodes[use.episode];
  anchor = {episode.head, 0};
  return episode.uid == use.name;
}

uint64_t Index::mark(Mask& mask, std::span<const int64_t> ids, bool may_be_drawn) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!is_id_of(ids[i], options_.owner, num_slots())) {
      throw base::InvalidArgument(id_refusal(ids[i], i, "nothing was marked"));
    }
  }
  uint64_t stored = 0;
  for (const int64_t packed : ids) {
    const StepId id = StepId::unpack(packed);
    Anchor anchor{};
    if (!find(id, anchor)) {
      continue;
    }
    ++stored;
    if (!id.episode) {
      drawables_.mark(mask, anchor, !may_be_drawn);
      continue;
    }
    const Episode& episode = state_.episodes[state_.pages[anchor.page].episode];
    for (uint32_t p = episode.head; p != kNone; p = state_.pages[p].next) {
      for (uint32_t row = 0; row < state_.pages[p].anchors; ++row) {
        drawables_.mark(mask, {p, row}, !may_be_drawn);
      }
    }
  }
  return stored;
}

void Index::deliver(const TakenDraws& draws) {
  state_.counters.steps_sampled += draws.draws;
  Anchor anchor{};
  Unit unit{};
  for (const Use& use : draws.uses) {
    if (!find(use, anchor, unit)) {
      continue;
    }
    drawables_.delivered(anchor, unit);
    free_exhausted(anchor);
  }
}

void Index::give_back(const TakenDraws& draws) {
  Anchor anchor{};
  Unit unit{};
  for (const Use& use : draws.uses) {
    if (find(use, anchor, unit)) {
      drawables_.given_back(anchor, unit);
      free_exhausted(anchor);  // an episode whose steps were all drawn and delivered meanwhile
    }
  }
}

void Index::free_exhausted(Anchor anchor) {
  const uint32_t e = state_.pages[anchor.page].episode;
  if (drawables_.exhausted(e)) {
    free_episode(e);
  }
}

TakenDraws Index::take_again(std::span<const uint64_t> uses, uint64_t draws, Unit unit) {
  GEAR_CHECK(taken_.draws == 0);
  if (options_.max_times_sampled > 0) {
    std::unordered_map<uint64_t, uint32_t> by_uid;
    for (uint32_t e = state_.oldest; e != kNone && unit == Unit::kEpisode;
         e = state_.episodes[e].newer) {
      by_uid.emplace(state_.episodes[e].uid, e);
    }
    for (const uint64_t name : uses) {
      Anchor anchor{};
      if (unit == Unit::kEpisode) {
        const auto found = by_uid.find(name);
        if (found != by_uid.end() && drawables_.drawable(found->second)) {
          mark_sampled({state_.episodes[found->second].head, 0}, unit);
        }
        continue;
      }
      const StepId id = StepId::unpack(static_cast<int64_t>(name));
      if (id.slot < num_slots() && !id.episode && id.owner == options_.owner && find(id, anchor) &&
          !drawables_.draws().spent(id.slot)) {
        mark_sampled(anchor, unit);
      }
    }
  }
  TakenDraws taken = take_draws();
  taken.draws = draws;
  return taken;
}

void Index::refresh(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  if (!episode.ended()) {
    return;
  }
  drawables_.refresh(e);
  chains_.rank(e, episode_priority(state_, episode));
}

// ---- episodes and pages ----

uint32_t Index::next_page(uint32_t requester, bool closing) {
  if (requester != kNone && state_.pages[state_.episodes[requester].tail].rows == 0) {
    return state_.episodes[requester].tail;
  }
  while (state_.free_pages.empty()) {
    const uint32_t e = chains_.victim({requester, closing});
    if (e == kNone && closing) {
      throw base::OutOfMemory(base::cat(
          "[buffer] no page for the closing step: each of the ", options_.num_pages, " pages of ",
          options_.page_steps, " steps is the last one of an open episode; raise capacity, or end ",
          "the episode without its closing step (final)"));
    }
    if (e == kNone) {
      throw base::OutOfMemory(
          base::cat("[buffer] no page to evict: each of the ", options_.num_pages, " pages of ",
                    options_.page_steps,
                    " steps is the last one of an open episode; raise capacity, "
                    "lower page_steps or run fewer writers"));
    }
    if (e == requester && state_.episodes[e].head == state_.episodes[e].tail) {
      drop_head_page(e);
      return take_free_page(e);  // no moment without a page, in which others could take it
    }
    evict_head_page(e);
  }
  return state_.free_pages.front();
}

uint32_t Index::attach_page(uint32_t& e) {
  if (e == kNone) {
    e = chains_.open();
    drawables_.opened(e);
  } else if (state_.pages[state_.episodes[e].tail].rows == 0) {
    return state_.episodes[e].tail;
  }
  return take_free_page(e);
}

uint32_t Index::take_free_page(uint32_t e) {
  GEAR_CHECK(!state_.free_pages.empty());
  const uint32_t page = chains_.attach(e);
  dirty_.episode(e);
  dirty_.page(page);
  if (state_.pages[page].previous != kNone) {
    dirty_.page(state_.pages[page].previous);
  }
  return page;
}

void Index::drop_head_page(uint32_t e) {
  dirty_.episode(e);
  dirty_.page(state_.episodes[e].head);
  drawables_.drops_head(e);
  chains_.rank(e, -1.0);
  chains_.drop_head(e);
  if (state_.episodes[e].head != kNone) {
    dirty_.page(state_.episodes[e].head);  // nothing is before it
  }
}

void Index::evict_head_page(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  // Of an ended episode nothing is kept that could not be drawn: its closing step, spent steps.
  do {
    drop_head_page(e);
  } while (episode.head != kNone && drawables_.exhausted(e));
  if (!episode.ended()) {
    return;
  }
  if (episode.head == kNone) {
    chains_.remove(e);
  } else {
    refresh(e);
  }
}

void Index::free_episode(uint32_t e) {
  const uint64_t uid = state_.episodes[e].uid;
  while (state_.episodes[e].uid == uid) {
    evict_head_page(e);
  }
}

void Index::expect_append(uint32_t e, Anchor anchor) const {
  base::prefetch(&state_.episodes[e]);
  base::prefetch(&state_.pages[anchor.page]);
  base::prefetch(&slots_.priorities[slot(anchor)]);
  dirty_.prefetch(anchor.page, e);
  drawables_.prefetch(e, anchor.page);
}

void Index::append(uint32_t e, std::span<const float> priorities) {
  Episode& episode = state_.episodes[e];
  Page& page = state_.pages[episode.tail];
  const uint32_t row = page.rows;
  GEAR_CHECK(row + priorities.size() <= options_.page_steps);
  dirty_.episode(e);
  dirty_.page(episode.tail);
  dirty_.appended(episode.tail, row, priorities);
  const auto stored =
      std::span(slots_.priorities).subspan(slot({episode.tail, row}), priorities.size());
  float largest = state_.default_priority();
  float seen = state_.max_priority;
  PrioritySum of_largest = in_sum(largest, state_.sum_shift);
  PrioritySum sum = 0;
  for (size_t i = 0; i < priorities.size(); ++i) {
    float priority = priorities[i];
    if (priority < 0) {
      priority = seen = largest;
      sum += of_largest;
    } else {
      priority = std::fabs(priority);  // of -0
      const PrioritySum in_units = in_sum(priority, state_.sum_shift);
      sum += in_units;
      if (priority > seen) {
        seen = largest = priority;
        of_largest = in_units;
      }
    }
    stored[i] = priority;
  }
  episode.priority_sum += sum;
  page.rows = page.anchors = static_cast<uint16_t>(row + priorities.size());
  episode.end += priorities.size();
  state_.num_steps += priorities.size();
  state_.counters.steps_inserted += priorities.size();
  drawables_.appended(e);
  raise_largest(seen, 0);
}

void Index::end_episode(uint32_t e, EpisodeState end_state, double weight,
                        uint64_t closing_columns) {
  Episode& episode = state_.episodes[e];
  GEAR_CHECK(!episode.ended() && end_state != EpisodeState::kOpen);
  dirty_.episode(e);
  if (closing_columns != 0) {
    constexpr float kNoPriority[] = {0.0F};  // a closing step has none
    Page& tail = state_.pages[episode.tail];
    dirty_.page(episode.tail);
    dirty_.appended(episode.tail, tail.rows, kNoPriority);
    ++tail.rows;
  }
  episode.closing_columns = closing_columns;
  episode.weight = weight;
  if (weight > 0) {
    raise_largest(0, as_priority(weight));
  }
  episode.state = end_state;
  episode.has_writer = false;
  chains_.ended(e);
  drawables_.ended(e);
  refresh(e);
  if (drawables_.exhausted(e)) {
    free_episode(e);  // without a step, or with spent ones alone
  }
}

// ---- priorities ----

uint64_t Index::update(std::span<const int64_t> ids, std::span<const float> priorities) {
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    store::check_update(ids[i], priorities[i], i, options_.owner, num_slots());
    const StepId id = StepId::unpack(ids[i]);
    base::prefetch(&state_.pages[anchor_of(id.slot).page]);
    base::prefetch(&slots_.priorities[id.slot]);
  }
  updated_.resize(ids.size());
  float largest = 0;
  float largest_weight = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const StepId id = StepId::unpack(ids[i]);
    if (find(id, updated_[i])) {
      float& of_kind = id.episode ? largest_weight : largest;
      of_kind = std::max(of_kind, priorities[i]);
      base::prefetch(&state_.episodes[state_.pages[updated_[i].page].episode].priority_sum);
    } else {
      updated_[i].page = kNone;
    }
  }
  uint64_t applied = 0;
  size_t steps = 0;  // those that updated_ keeps
  updated_priorities_.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const Anchor anchor = updated_[i];
    if (anchor.page == kNone) {
      ++state_.counters.stale_updates;
      continue;
    }
    ++applied;
    if (StepId::unpack(ids[i]).episode) {
      const uint32_t e = state_.pages[anchor.page].episode;
      state_.episodes[e].weight = static_cast<double>(priorities[i]);
      refresh(e);
      continue;
    }
    set_priority(anchor, priorities[i]);
    updated_[steps] = anchor;
    updated_priorities_[steps++] = priorities[i];
  }
  drawables_.updated({updated_.data(), steps}, {updated_priorities_.data(), steps});
  raise_largest(largest, largest_weight);
  return applied;
}

uint64_t Index::check_update(std::span<const int64_t> ids,
                             std::span<const float> priorities) const {
  GEAR_CHECK(ids.size() == priorities.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    store::check_update(ids[i], priorities[i], i, options_.owner, num_slots());
  }
  return static_cast<uint64_t>(std::count_if(ids.begin(), ids.end(), [&](int64_t id) {
    Anchor anchor{};
    return find(StepId::unpack(id), anchor);
  }));
}

void Index::set_priority(Anchor anchor, float priority) {
  const uint32_t e = state_.pages[anchor.page].episode;
  Episode& episode = state_.episodes[e];
  float& stored = slots_.priorities[slot(anchor)];
  episode.priority_sum += in_sum(priority, state_.sum_shift) - in_sum(stored, state_.sum_shift);
  stored = std::fabs(priority);
  if (episode.weight < 0 && ranks_episodes()) {
    refresh(e);
  }
}

bool Index::ranks_episodes() {
  return drawables_.weighs_episodes() || options_.evict == Evict::kLowestPriority;
}

void Index::raise_largest(float priority, float weight) {
  if (priority <= state_.max_priority && weight <= state_.max_weight) {
    return;
  }
  state_.max_priority = std::max(state_.max_priority, priority);
  state_.max_weight = std::max(state_.max_weight, weight);
  if (const int32_t shift = sum_shift(state_.max_priority); shift != state_.sum_shift) {
    state_.sum_shift = shift;
    sum_priorities(options_, state_, slots_);
    refresh_means();
  }
  drawables_.follow_largest();
}

// Of episodes that have no weight of their own.
void Index::refresh_means() {
  for (uint32_t e = state_.oldest; e != kNone && ranks_episodes(); e = state_.episodes[e].newer) {
    refresh(e);
  }
}

// ---- what mirrors give back ----

void Index::take_priorities(uint64_t first_slot, std::span<const float> priorities) {
  const uint64_t end = first_slot + priorities.size();
  GEAR_CHECK(end <= slots_.priorities.size());
  for (uint64_t slot = first_slot; slot < end;) {
    const Anchor anchor = anchor_of(static_cast<uint32_t>(slot));
    const uint64_t of_page = slot - anchor.row;
    const uint64_t stop = std::min(end, of_page + state_.pages[anchor.page].anchors);
    if (slot < stop) {
      std::copy_n(priorities.begin() + static_cast<ptrdiff_t>(slot - first_slot), stop - slot,
                  slots_.priorities.begin() + static_cast<ptrdiff_t>(slot));
    }
    slot = of_page + options_.page_steps;
  }
}

void Index::settle(std::span<const double> episode_weights, float max_priority, float max_weight,
                   uint64_t stale_updates) {
  // What saturates was counted where it was updated.
  const uint64_t saturated = state_.counters.saturated_weights;
  // Other ranks' may be larger, of which no mirror has heard.
  raise_largest(max_priority, max_weight);
  state_.counters.stale_updates += stale_updates;
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    state_.episodes[e].weight = episode_weights[e];
  }
  sum_priorities(options_, state_, slots_);
  for (uint32_t e = state_.oldest; e != kNone; e = state_.episodes[e].newer) {
    refresh(e);
  }
  drawables_.reweigh();
  state_.counters.saturated_weights = saturated;
}

}  // namespace gear::store

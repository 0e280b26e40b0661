#include "store/index/page_chains.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "store/drawable/priority_sum.h"

namespace gear::store {

PageChains::PageChains(const IndexOptions& options, IndexState& state, Slots& slots)
    : options_(options),
      state_(state),
      slots_(slots),
      evicted_at_(options.num_pages, 0),
      priority_key_(state.episodes.size(), -1.0) {
  for (uint32_t e = static_cast<uint32_t>(state_.episodes.size()); e-- > 0;) {
    if (state_.episodes[e].uid == 0) {
      free_episodes_.push_back(e);
      continue;
    }
    num_open_ += state_.episodes[e].ended() ? 0 : 1;
    let_go_of_head(e);
  }
  for (uint32_t p = 0; p < state_.pages.size(); ++p) {
    if (state_.pages[p].episode != kNone) {
      next_arrival_ = std::max(next_arrival_, state_.arrived[p] + 1);
    }
  }
}

// ---- the page that goes next ----

void PageChains::let_go_of_head(uint32_t e) {
  const Episode& episode = state_.episodes[e];
  if (!episode.ended() && episode.head == episode.tail) {
    return;
  }
  const std::pair place(state_.arrived[episode.head], episode.head);
  if (taken_.empty()) {
    going_.insert(going_.begin(), place);
  } else {
    taken_.value() = place;
    going_.insert(going_.begin(), std::move(taken_));
  }
}

void PageChains::take_out(uint32_t p) {
  const auto place = !going_.empty() && going_.begin()->second == p
                         ? going_.begin()
                         : going_.find({state_.arrived[p], p});
  if (place != going_.end()) {
    taken_ = going_.extract(place);
  }
}

bool PageChains::gives_up_its_only(const Need& need) const {
  if (need.episode == kNone || need.closing) {
    return false;
  }
  const Episode& episode = state_.episodes[need.episode];
  return episode.head == episode.tail && state_.pages[episode.head].rows == options_.page_steps;
}

uint32_t PageChains::victim(const Need& need) const {
  if (!ranked_.empty()) {
    return std::get<2>(options_.evict == Evict::kLifo ? *ranked_.rbegin() : *ranked_.begin());
  }
  const bool fifo = options_.evict == Evict::kFifo;
  const uint32_t requester = need.episode;
  if (!fifo && requester != kNone &&
      state_.episodes[requester].head != state_.episodes[requester].tail) {
    return requester;
  }
  if (gives_up_its_only(need) &&
      (going_.empty() ||
       (fifo && state_.arrived[state_.episodes[requester].head] < going_.begin()->first))) {
    return requester;
  }
  return going_.empty() ? kNone : state_.pages[going_.begin()->second].episode;
}

// ---- episodes ----

uint32_t PageChains::open() {
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
  ++num_open_;
  episode.has_writer = true;
  return e;
}

uint32_t PageChains::adopt(uint64_t uid) {
  for (uint32_t e = state_.newest; e != kNone; e = state_.episodes[e].older) {
    Episode& episode = state_.episodes[e];
    if (episode.uid != uid) {
      continue;
    }
    if (episode.ended() || episode.has_writer) {
      throw base::InvalidArgument(
          base::cat("[buffer] episode ", uid, episode.ended() ? " has ended" : " has a writer",
                    ": only an open episode without a writer can be continued"));
    }
    episode.has_writer = true;
    return e;
  }
  throw base::InvalidArgument(base::cat("[buffer] no episode ", uid,
                                        ": continue one of buffer.episodes() whose state is open"));
}

uint32_t PageChains::attach(uint32_t e) {
  GEAR_CHECK(!state_.free_pages.empty());
  const uint32_t p = state_.free_pages.front();
  state_.free_pages.pop_front();
  Episode& episode = state_.episodes[e];
  Page& page = state_.pages[p];
  GEAR_CHECK(page.episode == kNone && episode.end % options_.page_steps == 0);
  page.episode = e;
  page.first_step = episode.end;
  page.previous = episode.tail;
  page.next = kNone;
  (page.previous == kNone ? episode.head : state_.pages[page.previous].next) = p;
  episode.tail = p;
  state_.arrived[p] = next_arrival_++;
  if (page.previous == episode.head) {  // which was its only one
    let_go_of_head(e);
  }
  return p;
}

void PageChains::ended(uint32_t e) {
  --num_open_;
  let_go_of_head(e);
}

void PageChains::drop_head(uint32_t e) {
  Episode& episode = state_.episodes[e];
  const uint32_t p = episode.head;
  take_out(p);
  Page& page = state_.pages[p];
  const uint64_t first_slot = p * options_.page_steps;
  const std::span priorities(&slots_.priorities[first_slot], page.rows);
  episode.priority_sum -= summed(priorities.first(page.anchors), state_.sum_shift);
  std::fill(priorities.begin(), priorities.end(), 0.0F);
  if (!slots_.times_sampled.empty()) {
    std::fill_n(&slots_.times_sampled[first_slot], page.rows, uint16_t{0});
  }
  episode.begin += page.anchors;
  state_.num_steps -= page.anchors;
  state_.counters.steps_evicted += page.anchors;
  episode.head = page.next;
  (page.next == kNone ? episode.tail : state_.pages[page.next].previous) = kNone;
  const uint32_t generation = page.generation + 1;
  page = Page{};
  page.generation = generation;
  state_.free_pages.push_back(p);
  evicted_at_[p] = clock_;
  if (episode.head != kNone) {
    let_go_of_head(e);
  }
}

void PageChains::remove(uint32_t e) {
  rank(e, -1.0);
  Episode& episode = state_.episodes[e];
  (episode.older == kNone ? state_.oldest : state_.episodes[episode.older].newer) = episode.newer;
  (episode.newer == kNone ? state_.newest : state_.episodes[episode.newer].older) = episode.older;
  episode = Episode{};
  free_episodes_.push_back(e);
  --state_.num_episodes;
}

void PageChains::rank(uint32_t e, double priority) {
  if (options_.evict == Evict::kFifo) {
    return;
  }
  if (options_.evict == Evict::kLifo) {
    priority = std::min(priority, 0.0);
  }
  if (priority_key_[e] == priority) {
    return;
  }
  const uint64_t uid = state_.episodes[e].uid;
  if (priority_key_[e] >= 0) {
    ranked_.erase({priority_key_[e], uid, e});
  }
  if (priority >= 0) {
    ranked_.insert({priority, uid, e});
  }
  priority_key_[e] = priority < 0 ? -1.0 : priority;
}

}  // namespace gear::store

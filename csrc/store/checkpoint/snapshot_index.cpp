#include "store/checkpoint/snapshot_index.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "store/checkpoint/byte_stream.h"
#include "store/checkpoint/index_check.h"
#include "store/index/update_check.h"

namespace gear::store {
namespace {

constexpr uint64_t kEpisodeBytes = 8 * 7 + 4 + 1 + 8;  // fixed part of an episode's entry

// Of the stored steps, in 2^-24.
uint64_t sum_of_priorities(const Index& index, uint32_t e) {
  uint64_t sum = 0;
  for (uint32_t p = index.episode(e).head; p != kNone; p = index.page(p).next) {
    for (uint32_t row = 0; row < index.page(p).anchors; ++row) {
      const double priority = index.priority({p, row});
      sum += static_cast<uint64_t>(std::min(priority * 0x1p24 + 0.5, 0x1p40));
    }
  }
  return sum;
}

// What batches in flight drew is saved as not drawn: their loader's state takes it again.
void encode_episode(const Index& index, uint32_t e, ByteWriter& out) {
  const IndexState& state = index.state();
  const Episode& episode = index.episode(e);
  out.put(episode.uid);
  out.put(episode.begin);
  out.put(episode.end);
  out.put(episode.end);  // once: how far an open episode was offered
  out.put(episode.closing_columns);
  out.put(sum_of_priorities(index, e));  // for readers of then
  out.put(episode.weight);
  out.put(index.drawables().draws().episode_times_delivered(e));
  out.put(static_cast<uint8_t>(episode.state));
  uint64_t count = 0;
  for (uint32_t p = episode.head; p != kNone; p = state.pages[p].next) {
    ++count;
  }
  out.put(count);
  for (uint32_t p = episode.head; p != kNone; p = state.pages[p].next) {
    out.put(p);
  }
}

[[noreturn]] void corrupt(const std::string& what) {
  throw base::CorruptData("[checkpoint] the index is wrong: " + what);
}

// Links the pages of an episode and derives what each holds from the episode's own numbers;
// `arrivals` pages were linked before.
void decode_episode(SavedIndex& saved, uint32_t e, uint64_t& arrivals, ByteReader& in) {
  IndexState& index = saved.state;
  Episode& episode = index.episodes[e];
  episode.uid = in.get<uint64_t>();
  episode.begin = in.get<uint64_t>();
  episode.end = in.get<uint64_t>();
  const auto offered_end = in.get<uint64_t>();
  episode.closing_columns = in.get<uint64_t>();
  in.get<uint64_t>();
  episode.weight = in.get<double>();
  episode.times_sampled = in.get<uint32_t>();
  const auto state = in.get<uint8_t>();
  if (state > static_cast<uint8_t>(EpisodeState::kTruncated)) {
    corrupt("state of an episode");
  }
  episode.state = static_cast<EpisodeState>(state);

  const uint64_t count = in.get_count(sizeof(uint32_t));
  const uint64_t rows = episode.end - episode.begin + (episode.closing_columns != 0);
  if (episode.end < episode.begin || episode.end - episode.begin > uint64_t{1} << 32 ||
      offered_end < episode.begin || offered_end > episode.end ||
      rows > count * saved.options.page_steps ||
      (count > 0 && rows < (count - 1) * saved.options.page_steps)) {
    corrupt(base::cat("episode ", episode.uid, " has ", count, " pages for ", rows, " rows"));
  }
  for (uint64_t i = 0; i < count; ++i) {
    const auto p = in.get<uint32_t>();
    if (p >= saved.options.num_pages || index.pages[p].episode != kNone) {
      corrupt(base::cat("page ", p, " of episode ", episode.uid));
    }
    Page& page = index.pages[p];
    page.episode = e;
    page.first_step = episode.begin + i * saved.options.page_steps;
    // The last page may be empty: attached, and its first step still on the way.
    page.rows = static_cast<uint16_t>(
        std::min(saved.options.page_steps, rows - i * saved.options.page_steps));
    page.previous = episode.tail;
    (page.previous == kNone ? episode.head : index.pages[page.previous].next) = p;
    episode.tail = p;
    page.anchors = static_cast<uint16_t>(std::min(page.first_step + page.rows, episode.end) -
                                         std::min(page.first_step, episode.end));
    index.arrived[p] = ++arrivals;
  }
}

// Once an open episode could have no page, and no step: of such a one nothing is left to go on
// with.
void decode_episodes(SavedIndex& saved, ByteReader& in) {
  IndexState& state = saved.state;
  const uint64_t count = in.get_count(kEpisodeBytes);
  uint64_t arrivals = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto e = static_cast<uint32_t>(state.episodes.size());
    state.episodes.emplace_back();
    decode_episode(saved, e, arrivals, in);
    Episode& episode = state.episodes[e];
    if (episode.head == kNone && !episode.ended() && episode.begin == episode.end) {
      state.episodes.pop_back();
      continue;
    }
    state.num_steps += episode.end - episode.begin;
    episode.older = state.newest;
    (e == 0 ? state.oldest : state.episodes[e - 1].newer) = e;
    state.newest = e;
  }
  state.num_episodes = state.episodes.size();
  if (count > state.num_episodes) {
    base::log(base::Level::kWarning,
              base::cat("[checkpoint] open episodes of which no step is kept: ",
                        count - state.num_episodes, "; they are left out"));
  }
}

void decode_slots(SavedIndex& saved, ByteReader& in) {
  const uint64_t count = used_pages(saved.state).size() * saved.options.page_steps;
  memory::LargeVector<float>& priorities = saved.slots.priorities;
  in.get_vector(count, priorities);
  // The sign once marked rows without a step, and steps that were not offered yet.
  std::ranges::transform(priorities, priorities.begin(),
                         [](float priority) { return std::fabs(priority); });
  if (saved.options.max_times_sampled > 0) {
    in.get_vector(count, saved.slots.times_sampled);
  }
}

void decode_kept_updates(SavedIndex& saved, ByteReader& in) {
  const uint64_t count = in.get_count(sizeof(int64_t) + sizeof(float));
  for (uint64_t i = 0; i < count; ++i) {
    const auto id = in.get<int64_t>();
    const auto priority = in.get<float>();
    if (id < 0 || !is_priority(priority)) {
      corrupt(base::cat("priority ", priority, " of id ", id, ", to be told to other ranks"));
    }
    saved.kept_updates.push_back({id, priority});
  }
}

// Each used page once, or the checks of the index refuse it.
void decode_arrivals(SavedIndex& saved, ByteReader& in) {
  IndexState& state = saved.state;
  state.arrived.assign(saved.options.num_pages, 0);
  const uint64_t count = used_pages(state).size();
  for (uint64_t i = 1; i <= count; ++i) {
    const auto p = in.get<uint32_t>();
    if (p >= saved.options.num_pages || state.arrived[p] != 0) {
      corrupt(base::cat("page ", p, " in the order in which pages were filled"));
    }
    state.arrived[p] = i;
  }
}

// `pages` as they are saved.
std::vector<uint32_t> by_arrival(const IndexState& state, std::vector<uint32_t> pages) {
  std::ranges::sort(pages, {}, [&](uint32_t p) { return state.arrived[p]; });
  return pages;
}

float largest_stored_weight(const IndexState& state) {
  float largest = 0;
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    largest = std::max(largest, as_priority(state.episodes[e].weight));
  }
  return largest;
}

}  // namespace

uint32_t format_of(const IndexState& state, std::span<const KeptUpdate> kept) {
  const std::vector<uint32_t> pages = used_pages(state);
  if (state.max_weight > largest_stored_weight(state)) {
    return 4;
  }
  if (by_arrival(state, pages) != pages) {
    return 3;
  }
  return kept.empty() ? 1 : 2;
}

std::vector<std::byte> encode_index(Shard& shard, std::span<const KeptUpdate> kept) {
  const Index& index = shard.index();
  const IndexState& state = index.state();
  const RateLimiter& limiter = shard.rate_limiter();
  ByteWriter out;
  out.put_text(shard.schema().text());
  out.put(index.options().page_steps);
  out.put(index.options().num_pages);
  out.put(static_cast<uint32_t>(index.options().evict));
  out.put(index.options().max_times_sampled);
  out.put(limiter.samples_per_insert());
  out.put(limiter.min_steps());
  out.put(limiter.slack());
  out.put(limiter.num_sampled());
  out.put(limiter.num_inserted());
  out.put(state.next_uid);
  out.put(state.identity);
  out.put(state.seeds_given);
  out.put(state.max_priority);
  out.put(state.counters.steps_inserted);
  out.put(state.counters.steps_evicted);
  out.put(state.counters.steps_sampled);
  out.put(state.counters.stale_updates);
  out.put(state.counters.saturated_weights);
  for (const Page& page : state.pages) {
    out.put(page.generation);
  }
  out.put(static_cast<uint64_t>(state.free_pages.size()));
  for (uint32_t page : state.free_pages) {
    out.put(page);
  }
  out.put(state.num_episodes);
  for (uint32_t e = state.oldest; e != kNone; e = state.episodes[e].newer) {
    encode_episode(index, e, out);
  }
  const uint64_t page_steps = index.options().page_steps;
  const std::vector<uint32_t> pages = used_pages(state);
  for (uint32_t p : pages) {
    const auto anchors = state.pages[p].anchors;
    out.put_span(std::span(index.slots().priorities).subspan(p * page_steps, anchors));
    for (uint64_t row = anchors; row < page_steps; ++row) {
      out.put(-0.0F);  // no step lies there
    }
  }
  for (uint32_t p : pages) {
    if (index.slots().times_sampled.empty()) {
      break;
    }
    for (uint64_t slot = p * page_steps; slot < (p + uint64_t{1}) * page_steps; ++slot) {
      out.put(index.drawables().draws().times_delivered(slot));
    }
  }
  const std::vector<uint32_t> arrivals = by_arrival(state, pages);
  const uint32_t format = format_of(state, kept);
  if (format >= 2) {
    out.put(static_cast<uint64_t>(kept.size()));
  }
  for (const KeptUpdate& one : kept) {
    out.put(one.id);
    out.put(one.priority);
  }
  if (format >= 3) {
    out.put_span(std::span(arrivals));
  }
  if (format >= 4) {
    out.put(state.max_weight);
  }
  return out.bytes();
}

namespace {

SavedIndex decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  SavedIndex saved;
  saved.schema_text = in.get_text();
  Schema::parse(saved.schema_text);
  saved.options.page_steps = in.get<uint64_t>();
  saved.options.num_pages = in.get<uint64_t>();
  const auto evict = in.get<uint32_t>();
  saved.options.max_times_sampled = in.get<uint32_t>();
  if (evict > static_cast<uint32_t>(Evict::kLowestPriority) || saved.options.page_steps < 1 ||
      saved.options.page_steps > PageLayout::kMaxPageSteps ||
      saved.options.num_pages > bytes.size() / sizeof(uint32_t)) {
    corrupt("sizes and options");
  }
  saved.options.evict = static_cast<Evict>(evict);
  check_options(saved.options);
  const auto samples_per_insert = in.get<double>();
  const auto min_steps = in.get<uint64_t>();
  saved.rate_limiter = RateLimiter(samples_per_insert, min_steps, in.get<double>());
  const auto num_sampled = in.get<uint64_t>();
  saved.rate_limiter.restore(num_sampled, in.get<uint64_t>());

  IndexState& state = saved.state;
  state.next_uid = in.get<uint64_t>();
  state.identity = in.get<uint32_t>();
  state.seeds_given = in.get<uint32_t>();
  state.max_priority = in.get<float>();
  state.counters.steps_inserted = in.get<uint64_t>();
  state.counters.steps_evicted = in.get<uint64_t>();
  state.counters.steps_sampled = in.get<uint64_t>();
  state.counters.stale_updates = in.get<uint64_t>();
  state.counters.saturated_weights = in.get<uint64_t>();
  state.pages.resize(saved.options.num_pages);
  for (Page& page : state.pages) {
    page.generation = in.get<uint32_t>();
  }
  for (uint64_t left = in.get_count(sizeof(uint32_t)); left > 0; --left) {
    state.free_pages.push_back(in.get<uint32_t>());
  }
  state.arrived.resize(saved.options.num_pages);
  decode_episodes(saved, in);
  decode_slots(saved, in);
  state.max_weight = largest_stored_weight(state);
  if (!in.empty()) {
    decode_kept_updates(saved, in);
  }
  if (!in.empty()) {
    decode_arrivals(saved, in);
  }
  if (!in.empty()) {
    state.max_weight = in.get<float>();
  }
  if (!in.empty()) {
    corrupt("bytes are left over at its end");
  }
  check_saved(saved.options, saved.state, saved.slots);
  return saved;
}

}  // namespace

SavedIndex decode_index(std::span<const std::byte> bytes) {
  try {
    return decode(bytes);
  } catch (const base::InvalidArgument& error) {
    corrupt(error.what());  // a value that no caller gave
  }
}

}  // namespace gear::store

#include "store/mirror/delta.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/threads/prefetch.h"

namespace gear::store {
namespace {

constexpr size_t kAhead = 8;  // records that whoever goes through them asks for ahead

}  // namespace

DeltaEncoder::DeltaEncoder(Index& index)
    : index_(index), reader_(index.dirty()), shown_pages_(index.options().num_pages) {}

void DeltaEncoder::look(std::span<const std::shared_ptr<const Drawable>> steps,
                        bool with_priorities) {
  steps_ = steps;
  with_priorities_ = with_priorities;
  next_page_ = next_episode_ = 0;
  pages_.clear();
  episodes_.clear();
  changed_pages_.clear();
  changed_episodes_.clear();
  const uint64_t num_episodes = index_.state().episodes.size();
  reader_.take(num_episodes, changed_pages_, changed_episodes_);
  for (size_t i = 0; i < changed_pages_.size(); ++i) {
    if (i + kAhead < changed_pages_.size()) {
      base::prefetch(&shown_pages_[changed_pages_[i + kAhead]]);
      base::prefetch(&index_.page(changed_pages_[i + kAhead]));
    }
    const uint32_t p = changed_pages_[i];
    const Page& page = index_.page(p);
    const bool used = page.episode != kNone;
    const ShownPage before =
        std::exchange(shown_pages_[p], ShownPage{page.generation, page.rows, used});
    if (used || before.used) {
      const bool same = used && before.used && before.generation == page.generation;
      pages_.push_back({p, same ? before.rows : uint16_t{0}});
    }
  }
  shown_episodes_.resize(num_episodes);
  for (const uint32_t e : changed_episodes_) {
    const Episode& episode = index_.episode(e);
    const ShownEpisode before =
        std::exchange(shown_episodes_[e], ShownEpisode{episode.uid, episode.ended()});
    // The index sets it when an episode opens, and when it ends.
    episodes_.push_back({e, before.uid != episode.uid || before.ended != episode.ended()});
  }
}

void DeltaEncoder::follow_priorities() {
  index_.dirty().follow_priorities();
  for (ShownPage& page : shown_pages_) {
    page.rows = 0;
  }
  shown_episodes_.assign(shown_episodes_.size(), {});
  reader_.start_over();
}

uint64_t DeltaEncoder::records() const {
  return (index_.options().page_steps + PageDelta::kMaxRows - 1) / PageDelta::kMaxRows;
}

uint64_t DeltaEncoder::words() const {
  return steps_.size() * (records() + StepBits::words_of(index_.options().page_steps));
}

uint64_t DeltaEncoder::values(const PageChange& change) const {
  const uint64_t rows = index_.page(change.page).rows;
  return with_priorities_ && rows > change.kept ? rows - change.kept : 0;
}

void DeltaEncoder::encode_page(const PageChange& change, Cursor& out) const {
  const Page& page = index_.page(change.page);
  const uint64_t page_steps = index_.options().page_steps;
  const uint64_t first_slot = index_.slot({change.page, 0});
  for (uint64_t begin = 0; begin < page_steps; begin += PageDelta::kMaxRows) {
    const uint64_t end = std::min<uint64_t>(page_steps, begin + PageDelta::kMaxRows);
    const PageDelta& delta = *out.page = {page,
                                          change.page,
                                          out.values_done,
                                          out.words_done,
                                          static_cast<uint16_t>(begin),
                                          static_cast<uint16_t>(end),
                                          change.kept,
                                          begin == 0,
                                          index_.drawables().heads()[change.page] != 0};
    ++out.page;
    for (const auto& steps : steps_) {
      out.words[out.words_done++] = steps->counts()[change.page];
      const auto of_rows = steps->bits().words(change.page).subspan(begin / 64, delta.num_words());
      std::ranges::copy(of_rows, out.words + out.words_done);
      out.words_done += delta.num_words();
    }
    if (!with_priorities_) {
      continue;
    }
    for (uint64_t row = std::max<uint64_t>(begin, change.kept);
         row < std::min<uint64_t>(end, page.rows); ++row) {
      const float priority = index_.slots().priorities[first_slot + row];
      out.values[out.values_done++] =
          index_.dirty().took_default(first_slot + row) ? -priority : priority;
    }
  }
}

void DeltaEncoder::prefetch(uint32_t page) const {
  base::prefetch(&index_.page(page));
  index_.drawables().heads().prefetch(page);
  for (const auto& steps : steps_) {
    steps->bits().prefetch(page);
    steps->counts().prefetch(page);
  }
}

EpisodeDelta DeltaEncoder::encode_episode(const EpisodeChange& change) const {
  const Episode& episode = index_.episode(change.episode);
  return {episode.begin,     episode.end,  episode.closing_columns, episode.weight, change.episode,
          change.weight_set, episode.state};
}

DeltaRound DeltaEncoder::next(std::span<std::byte> out) {
  DeltaRound round;
  const auto add = [&](const DeltaRound& more) {
    const DeltaRound larger{round.num_pages + more.num_pages,
                            round.num_episodes + more.num_episodes,
                            round.num_words + more.num_words, round.num_values + more.num_values};
    const bool fits = larger.bytes() <= out.size();
    if (fits) {
      round = larger;
    }
    return fits;
  };
  size_t stop_page = next_page_;
  while (stop_page < pages_.size() && add({records(), 0, words(), values(pages_[stop_page])})) {
    ++stop_page;
  }
  size_t stop_episode = next_episode_;
  while (stop_episode < episodes_.size() && add({0, 1, 0, 0})) {
    ++stop_episode;
  }
  GEAR_CHECK(stop_page > next_page_ || stop_episode > next_episode_ || done());

  Cursor cursor{reinterpret_cast<PageDelta*>(out.data()),
                reinterpret_cast<uint64_t*>(out.data() + round.words_offset()),
                reinterpret_cast<float*>(out.data() + round.values_offset())};
  auto* episode = reinterpret_cast<EpisodeDelta*>(out.data() + round.episodes_offset());
  for (; next_page_ < stop_page; ++next_page_) {
    if (next_page_ + kAhead < stop_page) {
      prefetch(pages_[next_page_ + kAhead].page);
    }
    encode_page(pages_[next_page_], cursor);
  }
  for (; next_episode_ < stop_episode; ++next_episode_) {
    *episode++ = encode_episode(episodes_[next_episode_]);
  }
  return round;
}

}  // namespace gear::store

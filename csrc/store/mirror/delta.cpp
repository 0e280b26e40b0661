#include "store/mirror/delta.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/errors.h"

namespace gear::store {

DeltaEncoder::DeltaEncoder(const Index& index, const Drawable& drawable, const ChangeLog& log,
                           bool with_priorities)
    : index_(index), drawable_(drawable), log_(log), with_priorities_(with_priorities) {}

DeltaEncoder::Rows DeltaEncoder::rows_of(const ChangeLog::PageChange& change) const {
  if (!with_priorities_) {
    return {0, 0};
  }
  const Page page = seen(change.page);
  if (change.kept == 0) {
    return {0, std::max(change.rows, page.rows)};
  }
  const auto [least, most] = std::minmax(change.reached, page.anchors);
  Rows rows{least, least == most ? least : most};
  if (page.rows > change.kept) {
    rows.begin = rows.begin == rows.end ? change.kept : std::min<uint64_t>(rows.begin, change.kept);
    rows.end = page.rows;
  }
  return rows;
}

uint64_t DeltaEncoder::num_values(const ChangeLog::PageChange& change, const Page& page,
                                  uint64_t begin, uint64_t end) {
  begin = std::max<uint64_t>(begin, change.kept);
  end = std::min<uint64_t>(end, page.rows);
  return end > begin ? end - begin : 0;
}

// A page as the mirror has it: its steps are those that may be drawn.
Page DeltaEncoder::seen(uint32_t p) const {
  Page page = index_.page(p);
  page.anchors = static_cast<uint16_t>(drawable_.reached(p));
  return page;
}

void DeltaEncoder::encode_page(const ChangeLog::PageChange& change, PageDelta*& record,
                               float* values, uint32_t& values_done) const {
  const Page page = seen(change.page);
  const Rows rows = rows_of(change);
  const uint64_t first_slot = index_.slot({change.page, 0});
  for (uint64_t i = 0; i < rows.num_records(); ++i) {
    const uint64_t begin = rows.begin + i * PageDelta::kMaxRows;
    const uint64_t end = std::min(rows.end, begin + PageDelta::kMaxRows);
    *record++ = {page,
                 change.page,
                 values_done,
                 static_cast<uint16_t>(begin),
                 static_cast<uint16_t>(end),
                 change.kept,
                 static_cast<uint16_t>(drawable_.counts()[change.page]),
                 i == 0,
                 index_.drawables().heads()[change.page] != 0};
    const uint64_t count = num_values(change, page, begin, end);
    const uint64_t from = first_slot + std::max<uint64_t>(begin, change.kept);
    for (uint64_t slot = from; slot < from + count; ++slot) {
      const float priority = std::fabs(index_.state().priorities[slot]);
      values[values_done++] = log_.took_default(slot) ? -priority : priority;
    }
  }
}

EpisodeDelta DeltaEncoder::encode_episode(uint32_t e) const {
  const Episode& episode = index_.episode(e);
  return {episode.begin,      episode.end,  episode.closing_columns, episode.weight, e,
          log_.weight_set(e), episode.state};
}

DeltaRound DeltaEncoder::next(std::span<std::byte> out) {
  const auto& pages = log_.pages();
  const auto& episodes = log_.episodes();
  DeltaRound round;
  const auto add = [&](uint64_t records, uint64_t entries, uint64_t values) {
    DeltaRound larger{round.num_pages + records, round.num_episodes + entries,
                      round.num_values + values};
    const bool fits = larger.bytes() <= out.size();
    if (fits) {
      round = larger;
    }
    return fits;
  };
  size_t stop_page = next_page_;
  while (stop_page < pages.size()) {
    const ChangeLog::PageChange& change = pages[stop_page];
    const Rows rows = rows_of(change);
    const uint64_t values = num_values(change, index_.page(change.page), rows.begin, rows.end);
    if (!add(rows.num_records(), 0, values)) {
      break;
    }
    ++stop_page;
  }
  size_t stop_episode = next_episode_;
  while (stop_episode < episodes.size() && add(0, 1, 0)) {
    ++stop_episode;
  }
  GEAR_CHECK(stop_page > next_page_ || stop_episode > next_episode_ || done());

  auto* record = reinterpret_cast<PageDelta*>(out.data());
  auto* episode = reinterpret_cast<EpisodeDelta*>(out.data() + round.episodes_offset());
  auto* values = reinterpret_cast<float*>(out.data() + round.values_offset());
  uint32_t values_done = 0;
  for (; next_page_ < stop_page; ++next_page_) {
    encode_page(pages[next_page_], record, values, values_done);
  }
  for (; next_episode_ < stop_episode; ++next_episode_) {
    *episode++ = encode_episode(episodes[next_episode_]);
  }
  return round;
}

}  // namespace gear::store

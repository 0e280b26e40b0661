#include "group/pull/published_steps.h"

#include <algorithm>

#include "base/threads/interrupt.h"

namespace gear::group {
namespace {

constexpr uint64_t kPagesAtOnce = 4096;

}  // namespace

void PublishedSteps::look() {
  runs_.clear();
  read_all_ = true;
  for (uint32_t owner = 0; owner < shards_.size(); ++owner) {
    const uint64_t num_pages = shards_.layout(owner).levels.front().count;
    for (uint64_t page = 0; page < num_pages; page += kPagesAtOnce) {
      base::check_stopped();
      look(owner, page, std::min(kPagesAtOnce, num_pages - page));
    }
  }
}

void PublishedSteps::look(uint32_t owner, uint64_t first_page, uint64_t num_pages) {
  const store::PublishedLayout& layout = shards_.layout(owner);
  std::vector<uint64_t> masses(num_pages);
  std::vector<PublishedShards::Read> reads{
      {owner, layout.levels.front().begin + first_page * sizeof(uint64_t),
       num_pages * sizeof(uint64_t), reinterpret_cast<std::byte*>(masses.data())}};
  shards_.read(Part::kIndex, reads);

  struct Found {
    uint32_t number;
    uint64_t mass;
    store::PublishedPage page;
    store::PublishedEpisode episode;
  };
  std::vector<Found> found;
  for (uint64_t i = 0; i < num_pages; ++i) {
    if (masses[i] > 0) {
      found.push_back({static_cast<uint32_t>(first_page + i), masses[i], {}, {}});
    }
  }
  reads.clear();
  for (Found& one : found) {
    reads.push_back(
        {owner, layout.page(one.number), sizeof one.page, reinterpret_cast<std::byte*>(&one.page)});
  }
  shards_.read(Part::kIndex, reads);
  read_all_ &= std::erase_if(found, [](const Found& one) {
                 return !whole(one.page) || one.page.uid == 0 || one.page.episode == store::kNone;
               }) == 0;
  reads.clear();
  for (Found& one : found) {
    reads.push_back({owner, layout.episode(one.page.episode), sizeof one.episode,
                     reinterpret_cast<std::byte*>(&one.episode)});
  }
  shards_.read(Part::kIndex, reads);
  for (const Found& one : found) {
    const store::PublishedEpisode& episode = one.episode;
    if (!whole(episode) || episode.uid != one.page.uid) {
      read_all_ = false;  // the page was given up, or the record changed
      continue;
    }
    const uint64_t after = episode.ended() ? 0 : lookahead_;
    const uint64_t first = std::max(episode.begin, one.page.first_step);
    const uint64_t end = std::min({one.page.first_step + std::min(one.mass, page_steps_),
                                   episode.end > after ? episode.end - after : 0});
    if (first < end) {
      runs_.push_back({count() + end - first, {owner, one.number, end - 1 - one.page.first_step}});
    }
  }
}

PublishedPlace PublishedSteps::at(uint64_t target) const {
  const auto run = std::ranges::upper_bound(runs_, target, {}, &Run::end);
  PublishedPlace place = run->last;
  place.nth -= run->end - 1 - target;
  return place;
}

}  // namespace gear::group

#pragma once

#include <algorithm>

#include "plan/derived.h"
#include "plan/plan.h"

namespace gear::plan {

/// Runs that so many items make at most, of `length` steps each.
inline uint64_t most_runs(uint64_t items, uint64_t length, uint64_t page_steps) {
  return items * ((length + page_steps - 2) / page_steps + 1);
}

/// The steps of one window around anchors: how many there are, and the pages that hold them.
/// The caller holds the shard's lock.
class WindowRuns {
 public:
  WindowRuns(const store::Index& index, uint64_t page_steps, const PlanWindow& window)
      : index_(index), page_steps_(static_cast<uint32_t>(page_steps)), window_(window) {}

  bool lies_in_page(store::Anchor anchor) const {
    return plan::lies_in_page(window_, anchor.row, index_.page(anchor.page).anchors);
  }
  /// Then their only run, to the rows from `target` on.
  Run in_page(store::Anchor anchor, uint32_t target) const {
    return {anchor.page, static_cast<uint32_t>(anchor.row + window_.start),
            static_cast<uint32_t>(window_.stop - window_.start), target};
  }

  Extent extent(store::Anchor anchor) const {
    const store::Page& page = index_.page(anchor.page);
    const store::Episode& episode = index_.episode(page.episode);
    return extent_of(episode.begin, episode.end, episode.closing_columns,
                     page.first_step + anchor.row, window_);
  }

  /// Where the steps of an item stand in their episode.
  StandingFacts standing(store::Anchor anchor, const Extent& extent) const {
    const store::Episode& episode = index_.episode(index_.page(anchor.page).episode);
    return standing_of(extent, episode.end, episode.state);
  }

  /// Writes the runs of an item's steps, page by page, to `out`, and returns behind the last one.
  /// They go to the rows from `target` on.
  Run* add(store::Anchor anchor, const Extent& extent, uint32_t target, Run* out) const {
    uint32_t page = anchor.page;
    uint64_t page_first = index_.page(page).first_step;
    uint32_t left = extent.count;
    if (left == 0) {
      return out;
    }
    while (extent.first < page_first) {
      page = index_.page(page).previous;
      page_first -= page_steps_;
    }
    while (extent.first >= page_first + page_steps_) {
      page = index_.page(page).next;
      page_first += page_steps_;
    }
    auto row = static_cast<uint32_t>(extent.first - page_first);
    for (;;) {
      const uint32_t count = std::min(left, page_steps_ - row);
      *out++ = {page, row, count, target};
      left -= count;
      if (left == 0) {
        return out;
      }
      target += count;
      row = 0;
      page = index_.page(page).next;
    }
  }

 private:
  const store::Index& index_;
  uint32_t page_steps_;
  PlanWindow window_;
};

// Rows [place, place + count) of a window of `length` rows are steps, those around them zeros.

inline void write_mask(uint32_t length, uint32_t place, uint32_t count, bool* mask) {
  for (uint32_t i = 0; i < length; ++i) {
    mask[i] = i - place < count;
  }
}

/// Writes the runs of zeros, at most two, to `out`, and returns behind the last one; `row`: the
/// window's first.
inline Run* add_zeros(uint32_t length, uint32_t place, uint32_t count, uint32_t row, Run* out) {
  const uint32_t after = place + count;
  if (place > 0) {
    *out++ = {store::kNone, 0, place, row};
  }
  if (after < length) {
    *out++ = {store::kNone, 0, length - after, row + after};
  }
  return out;
}

}  // namespace gear::plan

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
  WindowRuns(const store::Index& index, uint64_t page_steps, const Output& window)
      : index_(index),
        page_steps_(static_cast<uint32_t>(page_steps)),
        column_(window.column),
        start_(window.start),
        stop_(window.stop),
        pad_(window.pad) {}

  /// The steps of one item, and the anchor's page, where the search for them begins.
  struct Steps {
    Extent extent;
    uint32_t page;
    uint64_t page_first;
  };

  Steps steps(store::Anchor anchor) const {
    const store::Page& page = index_.page(anchor.page);
    const store::Episode& episode = index_.episode(page.episode);
    const Extent extent = extent_of(episode.begin, episode.end, episode.closing_columns,
                                    page.first_step + anchor.row, column_, start_, stop_, pad_);
    return {extent, anchor.page, page.first_step};
  }

  /// Where the steps of an item stand in their episode.
  Standing standing(store::Anchor anchor, const Extent& extent) const {
    const store::Episode& episode = index_.episode(index_.page(anchor.page).episode);
    return standing_of(extent, episode.end, episode.state);
  }

  /// Adds the steps, of which there is one at least, page by page. They go to the rows from
  /// `target` on.
  void add(const Steps& steps, uint32_t target, Plan& plan) const {
    each(steps, target, [&](const Run& run) { plan.add(run); });
  }

  /// The same to an array, behind whose last run it returns.
  Run* add(const Steps& steps, uint32_t target, Run* out) const {
    each(steps, target, [&](const Run& run) { *out++ = run; });
    return out;
  }

  /// Runs that so many items make at most.
  uint64_t most_runs(uint64_t items) const {
    return plan::most_runs(items, static_cast<uint64_t>(stop_ - start_), page_steps_);
  }

 private:
  template <class Add>
  void each(const Steps& steps, uint32_t target, const Add& add) const {
    const Extent& extent = steps.extent;
    uint32_t page = steps.page;
    uint64_t page_first = steps.page_first;
    while (extent.first < page_first) {
      page = index_.page(page).previous;
      page_first -= page_steps_;
    }
    while (extent.first >= page_first + page_steps_) {
      page = index_.page(page).next;
      page_first += page_steps_;
    }
    auto row = static_cast<uint32_t>(extent.first - page_first);
    uint32_t left = extent.count;
    for (;;) {
      const uint32_t count = std::min(left, page_steps_ - row);
      add(Run{page, row, count, target});
      left -= count;
      if (left == 0) {
        return;
      }
      target += count;
      row = 0;
      page = index_.page(page).next;
    }
  }

  const store::Index& index_;
  uint32_t page_steps_;
  size_t column_;
  int64_t start_;
  int64_t stop_;
  Pad pad_;
};

// Rows [place, place + count) of a window of `length` rows are steps, those around them zeros.

inline void write_mask(uint32_t length, uint32_t place, uint32_t count, bool* mask) {
  for (uint32_t i = 0; i < length; ++i) {
    mask[i] = i - place < count;
  }
}

/// The runs of zeros, at most two; `row`: the window's first.
inline void add_zeros(uint32_t length, uint32_t place, uint32_t count, uint32_t row, Plan& plan) {
  const uint32_t after = place + count;
  if (place > 0) {
    plan.add({store::kNone, 0, place, row});
  }
  if (after < length) {
    plan.add({store::kNone, 0, length - after, row + after});
  }
}

}  // namespace gear::plan

#pragma once

#include "plan/derived.h"
#include "plan/window.h"
#include "store/mirror/device_view.h"

// One item of a batch, planned by one thread: what make_plan does for it on the host.

namespace gear::plan {

/// What the plan of an item reads; passed by value.
struct PlanTables : store::StepNames {
  const store::DeviceEpisode* episodes;  ///< by Page::episode
  uint32_t num_pages;
};

/// The tables of a mirror, whose pages are fewer than 2^32; `unit` marks the ids.
inline PlanTables plan_tables(const store::DeviceView& view, store::Unit unit) {
  return {store::step_names(view, unit), view.episodes, static_cast<uint32_t>(view.num_pages)};
}

/// An anchor with what there is of a window around it.
struct PlannedItem {
  Extent extent{0, 0, 0};
  StandingFacts standing;  ///< where it is asked for
  int64_t id = -1;         ///< of the anchor; -1: the slot holds no step, and nothing else is known
  uint32_t page = 0;       ///< the anchor's
  uint64_t page_first = 0;
};

/// In two loads of 16 bytes: member by member it would be more.
__device__ inline store::Page load_page(const store::Page* page) {
  const auto* const there = reinterpret_cast<const uint4*>(page);
  const uint4 halves[2] = {there[0], there[1]};
  static_assert(sizeof(halves) == sizeof(store::Page));
  store::Page loaded;
  __builtin_memcpy(&loaded, halves, sizeof(loaded));
  return loaded;
}

/// `slot` may be any number. Where nobody asks for the standing, a window that lies in the anchor's
/// page is planned without a look at the episode.
template <bool kStanding = true>
__device__ inline PlannedItem plan_item(const PlanTables& tables, const PlanWindow& window,
                                        uint32_t slot) {
  PlannedItem planned;
  const uint32_t number = tables.page_steps.divide(slot);
  if (number >= tables.num_pages) {
    return planned;
  }
  const store::Page page = load_page(tables.pages + number);
  if (page.episode == store::kNone) {
    return planned;
  }
  planned.page = number;
  planned.page_first = page.first_step;
  planned.id = tables.id_of(slot, page.generation);
  const uint32_t row = tables.page_steps.remainder(slot, number);
  const uint64_t step = page.first_step + row;
  if (!kStanding && lies_in_page(window, row, page.anchors)) {
    planned.extent = {step + static_cast<uint64_t>(window.start),
                      static_cast<uint32_t>(window.length()), 0};
    return planned;
  }
  const store::DeviceEpisode episode = tables.episodes[page.episode];
  planned.extent = extent_of(episode.begin, episode.end, episode.closing_columns, step, window);
  if constexpr (kStanding) {
    planned.standing = standing_of(planned.extent, episode.end, episode.state);
  }
  return planned;
}

/// Finds the slots of steps of one episode, asked for in ascending order, along its chain of pages.
class SlotWalk {
 public:
  __device__ SlotWalk(const PlanTables& tables, const PlannedItem& item)
      : pages_(tables.pages),
        page_steps_(tables.page_steps.divisor()),
        page_(item.page),
        first_(item.page_first) {}

  __device__ uint32_t slot_of(uint64_t step) {
    while (step < first_) {
      page_ = pages_[page_].previous;
      first_ -= page_steps_;
    }
    while (step >= first_ + page_steps_) {
      page_ = pages_[page_].next;
      first_ += page_steps_;
    }
    return page_ * page_steps_ + static_cast<uint32_t>(step - first_);
  }

 private:
  const store::Page* pages_;
  uint32_t page_steps_;
  uint32_t page_;
  uint64_t first_;
};

}  // namespace gear::plan

#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/names.h"

namespace gear::plan {

/// Where the rows of missing steps go.
///
///   steps wanted  -3 -2 -1  0  1        (the episode begins at -1 and ends after 0)
///   kBoth          .  . -1  0  .        every step in its own place
///   kHead          .  .  . -1  0        what is there moves to the end
///   kTail         -1  0  .  .  .        what is there moves to the front
enum class Pad : uint8_t { kBoth, kHead, kTail };
inline constexpr base::Names<Pad, 3> kPads{"[loader] pad", {"both", "head", "tail"}};

/// Steps [anchor + start, anchor + stop), never beyond the anchor's episode.
struct Window {
  int64_t start = 0;
  int64_t stop = 1;
  Pad pad = Pad::kBoth;

  GEAR_HD uint64_t length() const {
    return static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
  }
};

/// A window, and the columns whose closing step is one of its steps, a bit each.
struct PlanWindow : Window {
  uint64_t closing = 0;
};

/// The steps of a window that exist: [first, first + count) of the episode fill the rows
/// [place, place + count) of the window's length() rows.
struct Extent {
  uint64_t first;
  uint32_t count;
  uint32_t place;
};

/// Whether all steps of a window exist and lie in the page of its anchor, at this `row`: a page's
/// first `anchors` rows are steps. Then they are the window's extent, at place 0 whatever the pad;
/// to find that out takes no look at the episode.
GEAR_HD inline bool lies_in_page(const Window& window, uint32_t row, uint32_t anchors) {
  return row + window.start >= 0 && row + window.stop <= anchors;
}

/// [begin, end): the episode's stored steps; behind them stands the closing step of
/// `closing_columns`.
GEAR_HD inline Extent extent_of(uint64_t episode_begin, uint64_t episode_end,
                                uint64_t closing_columns, uint64_t anchor_step,
                                const PlanWindow& window) {
  const auto step = static_cast<int64_t>(anchor_step);
  const auto begin = static_cast<int64_t>(episode_begin);
  const uint64_t closing = (closing_columns & window.closing) != 0 ? 1 : 0;
  const auto end = static_cast<int64_t>(episode_end + closing);
  const int64_t start = step + window.start;
  const int64_t stop = step + window.stop;
  const int64_t from = start > begin ? start : begin;
  const int64_t to = stop < end ? stop : end;
  if (to <= from) {
    return {0, 0, 0};
  }
  int64_t place = 0;
  if (window.pad == Pad::kBoth) {
    place = from - start;
  }
  if (window.pad == Pad::kHead) {
    place = (stop - start) - (to - from);
  }
  return {static_cast<uint64_t>(from), static_cast<uint32_t>(to - from),
          static_cast<uint32_t>(place)};
}

}  // namespace gear::plan

#pragma once

#include <cstdint>
#include <string>

#include "base/errors.h"
#include "base/host_device.h"
#include "store/episode.h"
#include "store/id.h"

/// Whether an update of a priority may be applied: one arithmetic for the index and its mirrors.

namespace gear::store {

GEAR_HD inline bool is_priority(float priority) {
  return priority >= 0.0F && priority <= 3.402823466e+38F;  // no NaN, no infinity
}

GEAR_HD inline bool is_id_of(int64_t id, uint32_t owner, uint64_t num_slots) {
  const StepId step = StepId::unpack(id);
  return id >= 0 && step.owner == owner && step.slot < num_slots;
}

/// Whether the step that an id names is still stored, or the episode that begins there; `row` and
/// `page` are those of its slot. An episode begins with the page that has none before it. A page
/// that a mirror was never sent has all bits set: its episode alone says that it holds nothing.
GEAR_HD inline bool is_stored(StepId id, uint32_t row, const Page& page) {
  return page.episode != kNone && (page.generation & StepId::kGenerationMask) == id.generation &&
         row < page.anchors && (!id.episode || (page.previous == kNone && row == 0));
}

/// The text of the InvalidArgument that refuses an id; `nothing`: what was not done.
inline std::string id_refusal(int64_t id, uint64_t position, const char* nothing) {
  return base::cat("[buffer] id ", id, " at position ", position,
                   " is not of this buffer: use ids of its own batches; ", nothing);
}

/// What is wrong with such an update: the text of the InvalidArgument that refuses it.
inline std::string update_refusal(int64_t id, float priority, uint64_t position) {
  constexpr const char* kNothing = "nothing was updated";
  if (!is_priority(priority)) {
    return base::cat("[buffer] priority ", priority, " at position ", position,
                     ": a finite number, 0 or more, is allowed; ", kNothing);
  }
  return id_refusal(id, position, kNothing);
}

/// Throws InvalidArgument for an update that holds a wrong priority or id.
inline void check_update(int64_t id, float priority, uint64_t position, uint32_t owner,
                         uint64_t num_slots) {
  if (!is_priority(priority) || !is_id_of(id, owner, num_slots)) [[unlikely]] {
    throw base::InvalidArgument(update_refusal(id, priority, position));
  }
}

}  // namespace gear::store

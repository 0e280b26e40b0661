#include "group/cuda/parcel_inbox.h"

#include <bit>

#include "base/errors.h"
#include "group/cuda/device_meeting.h"

namespace gear::group {
namespace {

// A part of the inbox; by 256 bytes, so that each begins a line.
uint64_t part(uint64_t& end, uint64_t bytes) {
  const uint64_t begin = end;
  end = (end + bytes + 255) / 256 * 256;
  return begin;
}

}  // namespace

bool OwnedSlots::fit(uint32_t ranks, uint64_t num_slots) {
  return ranks <= kMostGpuRanks && num_slots < uint64_t{1} << of(ranks).slot_bits;
}

OwnedSlots OwnedSlots::of(uint32_t ranks) {
  return {32 - static_cast<uint32_t>(std::bit_width(ranks - 1))};
}

ParcelInbox::ParcelInbox(const plan::BatchLayout& layout) {
  GEAR_CHECK(!layout.packed);
  const uint64_t items = layout.batch_size;
  ids = part(bytes, items * sizeof(int64_t));
  probabilities = part(bytes, items * sizeof(float));
  for (const plan::BatchLayout::SharedWindow& shared : layout.windows) {
    Window window{};
    window.pieces = part(bytes, items * sizeof(uint2));
    window.standings = part(bytes, shared.derives ? items * sizeof(uint64_t) : 0);
    window.rows = part(bytes, items * shared.window.length() * sizeof(uint32_t));
    windows.push_back(window);
  }
}

}  // namespace gear::group

#include "emu/footprint.h"

namespace gear::emu {

Footprint footprint_of(const std::vector<Footprint>& footprints, uint64_t bytes) {
  if (footprints.empty()) {
    return {};
  }
  const Footprint* found = &footprints.front();
  for (const Footprint& one : footprints) {
    if (one.bytes <= bytes) {
      found = &one;
    }
  }
  return *found;
}

}  // namespace gear::emu

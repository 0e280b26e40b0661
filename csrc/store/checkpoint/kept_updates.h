#pragma once

#include <cstdint>

namespace gear::store {

/// A new priority of a step, or weight of an episode, of which its owner has yet to hear.
struct KeptUpdate {
  int64_t id;
  float priority;
  uint32_t zero = 0;  ///< no indeterminate bytes on the wire
};

}  // namespace gear::store

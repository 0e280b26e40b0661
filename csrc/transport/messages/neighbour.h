#pragma once

#include <cstdint>

#include "memory/shared/process_identity.h"

namespace gear::transport::messages {

/// A rank on this machine, whose process can be seen.
struct Neighbour {
  uint32_t rank;
  memory::ProcessIdentity process;
};

}  // namespace gear::transport::messages

#pragma once

#include "transport/nccl/nccl_library.h"

namespace gear::transport::nccl {

/// Runs `calls`, which sends and receives, as one group of NCCL's, and ends the group whatever they
/// throw: this thread's other users of the library, torch among them, would wait in it for ever.
/// What ended badly: the result of ncclGroupStart, with which nothing was run, or of ncclGroupEnd.
template <class Calls>
Result grouped(const Library& library, const Calls& calls) {
  if (const Result status = library.group_start(); status != kSuccess) {
    return status;
  }
  try {
    calls();
  } catch (...) {
    static_cast<void>(library.group_end());
    throw;
  }
  return library.group_end();
}

}  // namespace gear::transport::nccl

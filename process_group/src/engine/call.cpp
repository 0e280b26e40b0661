#include "engine/call.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"

namespace gear::process_group {

void Call::limit(double timeout_s) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(std::min(timeout_s, 1e9)));
  if (until < deadline) {
    deadline = until;
    timeout_s_ = timeout_s;
  }
}

std::string Call::late_gpu() const {
  return base::cat("[mpi] the GPU of rank ",
                   ring_->communicator.shown(ring_->communicator.place().rank),
                   " did not hand over the tensors of ", kind_name(kind_), " within ", timeout_s_,
                   " s: what its stream does before takes longer, or hangs");
}

}  // namespace gear::process_group

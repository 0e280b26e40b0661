#include "engine/call.h"

#include <algorithm>
#include <chrono>

#include "base/errors.h"

namespace gear::process_group {

void Call::limit(double timeout_s, Time now) {
  const Time until = now + std::chrono::duration_cast<Time::duration>(
                               std::chrono::duration<double>(std::min(timeout_s, 1e9)));
  if (until < deadline) {
    deadline = until;
    timeout_s_ = timeout_s;
  }
}

std::string Call::late_gpu() const {
  return base::cat("[mpi] the GPU of rank ", ring_->group.shown(ring_->place.rank),
                   " did not hand over the tensors of ", kind_name(kind_), " within ", timeout_s_,
                   " s: what its stream does before takes longer, or hangs");
}

}  // namespace gear::process_group

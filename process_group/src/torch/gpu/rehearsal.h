#pragma once

#include <cstdint>
#include <memory>

#include "torch/gpu/copier.h"

namespace gear::process_group {

/// For tensors of the host, by a thread that is late at random, and takes copies of several
/// operations in any order, as a GPU does: what tests have where there is no GPU.
std::unique_ptr<Copier> make_rehearsal_copier();
/// The copy to the host after so many more of this process's rehearsal throws, as one of a GPU that
/// is lost.
void rehearse_failure(int64_t copies);

}  // namespace gear::process_group

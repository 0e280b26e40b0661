#pragma once

#include "link/link_model.h"

namespace gear::link {

/// Measures; takes 4 GiB of pinned memory meanwhile, or what there is, and some 200 MiB of the
/// GPU's. Throws OutOfMemory, CudaError.
LinkModel measure_link(int device);

}  // namespace gear::link

#pragma once

#include "link/link_model.h"

namespace gear::link {

/// Measures the host's part of a staged batch, over an index too large for its caches.
LinkModel::HostCost measure_host_cost();

}  // namespace gear::link

#pragma once

#include "store/index/index.h"

namespace gear::store {

/// Throws CorruptData unless a state that came from outside (a checkpoint) agrees with itself and
/// every number in it is one that an index can have and go on from. Cost: O(pages + steps stored);
/// looks at no memory but the state's.
void check_saved(const IndexOptions& options, const SavedState& saved);

}  // namespace gear::store

#pragma once

#include "store/index/index_state.h"

namespace gear::store {

/// Throws CorruptData unless a state that came from outside (a checkpoint), with the slots of its
/// pages in use, agrees with itself and every number in it is one that an index can have and go on
/// from. Cost: O(pages + steps stored); looks at no memory but theirs.
void check_saved(const IndexOptions& options, const IndexState& state, const Slots& slots);

}  // namespace gear::store

#pragma once

#include <cstddef>
#include <cstdint>

#include "link/link_model.h"
#include "plan/batch.h"
#include "store/page_layout.h"

namespace gear::link {

/// Batches of rows in pinned memory that a GPU gathers in one pass in address order, when
/// `prefetch` of them are in flight over the link of `model`: between 1 and `most`.
///
///   prefetch / 2   the other half is there by the time it is needed
///   prefetch       where such a pass takes hardly longer than one over half as many, because what
///                  bounds it is the number of places it visits: the next pass then begins when the
///                  last batch but one is delivered
size_t pass_size(const LinkModel& model, const plan::BatchLayout& layout,
                 const store::PageLayout& pages, uint64_t num_pages, size_t prefetch, size_t most);

}  // namespace gear::link

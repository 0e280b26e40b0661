#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "collect/plan.h"
#include "store/page_layout.h"

namespace gear::collect {

// Moves what the plan says from the pages at `source` into the data of `batch`. Splits batches of a
// megabyte and more over the pool; the calling thread takes part.
void gather_cpu(const std::byte* source, const store::PageLayout& pages, const Plan& plan,
                const Batch& batch, base::ThreadPool& pool);

}  // namespace gear::collect

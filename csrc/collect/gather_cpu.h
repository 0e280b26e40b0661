#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "collect/plan.h"

namespace gear::collect {

// Executes the runs of a plan: from the shard's region at `source` to the batch's block at
// `target`. Splits plans of a megabyte and more over the pool; the calling thread takes part.
void gather_cpu(const std::byte* source, std::byte* target, const Plan& plan,
                base::ThreadPool& pool);

}  // namespace gear::collect

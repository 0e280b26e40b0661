#pragma once

#include <cstdint>
#include <span>

#include "base/threads/thread_pool.h"
#include "plan/plan.h"

namespace gear::gather {

/// Rows that runs name.
uint64_t count_rows(std::span<const plan::Run> runs, base::ThreadPool& pool);

/// Writes them out one by one, for kernels: entry i goes from slots[i] = page * page_steps + row
/// (kNone: zeros) to row targets[i]. `rows` is what count_rows() says. One to three nanoseconds a
/// row on one thread; long lists are split over the pool.
void list_rows(std::span<const plan::Run> runs, uint64_t rows, uint32_t page_steps, uint32_t* slots,
               uint32_t* targets, base::ThreadPool& pool);

}  // namespace gear::gather

#include "collect/row_lists.h"

#include <algorithm>
#include <vector>

namespace gear::collect {
namespace {

constexpr size_t kRunsPerTask = 16384;  // some ten microseconds

size_t num_tasks(std::span<const Run> runs) { return (runs.size() - 1) / kRunsPerTask + 1; }

std::span<const Run> part(std::span<const Run> runs, size_t task) {
  const size_t begin = task * kRunsPerTask;
  return runs.subspan(begin, std::min(kRunsPerTask, runs.size() - begin));
}

uint64_t count_part(std::span<const Run> runs) {
  uint64_t rows = 0;
  for (const Run& run : runs) rows += run.count;
  return rows;
}

void list_part(std::span<const Run> runs, uint32_t page_steps, uint32_t* slots, uint32_t* targets) {
  for (const Run& run : runs) {
    const bool there = run.page != store::kNone;
    const uint32_t slot = there ? run.page * page_steps + run.row : store::kNone;
    const uint32_t step = there ? 1 : 0;
    for (uint32_t i = 0; i < run.count; ++i) {
      slots[i] = slot + i * step;
      targets[i] = run.target + i;
    }
    slots += run.count;
    targets += run.count;
  }
}

}  // namespace

uint64_t count_rows(std::span<const Run> runs, base::ThreadPool& pool) {
  if (runs.size() <= kRunsPerTask) return count_part(runs);
  std::vector<uint64_t> counts(num_tasks(runs));
  pool.parallel_for(counts.size(), [&](size_t t) { counts[t] = count_part(part(runs, t)); });
  uint64_t rows = 0;
  for (const uint64_t count : counts) rows += count;
  return rows;
}

void list_rows(std::span<const Run> runs, uint32_t page_steps, uint32_t* slots, uint32_t* targets,
               base::ThreadPool& pool) {
  if (runs.size() <= kRunsPerTask) {
    list_part(runs, page_steps, slots, targets);
    return;
  }
  std::vector<uint64_t> begins(num_tasks(runs) + 1);
  pool.parallel_for(begins.size() - 1,
                    [&](size_t t) { begins[t + 1] = count_part(part(runs, t)); });
  for (size_t t = 1; t < begins.size(); ++t) begins[t] += begins[t - 1];
  pool.parallel_for(begins.size() - 1, [&](size_t t) {
    list_part(part(runs, t), page_steps, slots + begins[t], targets + begins[t]);
  });
}

}  // namespace gear::collect

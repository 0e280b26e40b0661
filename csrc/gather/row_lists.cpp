#include "gather/row_lists.h"

#include <algorithm>
#include <vector>

namespace gear::gather {
namespace {

constexpr size_t kPerTask = 16384;  // runs to count, rows to list: some ten microseconds

std::span<const plan::Run> part(std::span<const plan::Run> runs, size_t task, size_t tasks) {
  const size_t begin = runs.size() * task / tasks;
  return runs.subspan(begin, runs.size() * (task + 1) / tasks - begin);
}

uint64_t count_part(std::span<const plan::Run> runs) {
  uint64_t rows = 0;
  for (const plan::Run& run : runs) {
    rows += run.count;
  }
  return rows;
}

void list_part(std::span<const plan::Run> runs, uint32_t page_steps, uint32_t* slots,
               uint32_t* targets) {
  for (const plan::Run& run : runs) {
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

uint64_t count_rows(std::span<const plan::Run> runs, base::ThreadPool& pool) {
  if (runs.size() <= kPerTask) {
    return count_part(runs);
  }
  const size_t tasks = runs.size() / kPerTask;
  std::vector<uint64_t> counts(tasks);
  pool.parallel_for(tasks, [&](size_t t) { counts[t] = count_part(part(runs, t, tasks)); });
  uint64_t rows = 0;
  for (const uint64_t count : counts) {
    rows += count;
  }
  return rows;
}

void list_rows(std::span<const plan::Run> runs, uint64_t rows, uint32_t page_steps, uint32_t* slots,
               uint32_t* targets, base::ThreadPool& pool) {
  const size_t tasks = std::min<size_t>(runs.size(), rows / kPerTask);
  if (tasks <= 1) {
    list_part(runs, page_steps, slots, targets);
    return;
  }
  std::vector<uint64_t> begins(tasks + 1);
  pool.parallel_for(tasks, [&](size_t t) { begins[t + 1] = count_part(part(runs, t, tasks)); });
  for (size_t t = 1; t <= tasks; ++t) {
    begins[t] += begins[t - 1];
  }
  pool.parallel_for(tasks, [&](size_t t) {
    list_part(part(runs, t, tasks), page_steps, slots + begins[t], targets + begins[t]);
  });
}

}  // namespace gear::gather

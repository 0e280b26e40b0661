#include "collect/gather_cpu.h"

#include <algorithm>
#include <cstring>

namespace gear::collect {
namespace {

constexpr uint64_t kLine = 64;
constexpr size_t kPrefetchRuns = 24;      // random rows in flight: about the line-fill buffers
constexpr uint64_t kPrefetchBytes = 256;  // of one run; the hardware prefetcher takes over then
constexpr uint64_t kBytesPerTask = 1 << 19;

struct alignas(1) Bytes16 {
  unsigned char bytes[16];
};
struct alignas(1) Bytes32 {
  unsigned char bytes[32];
};

// Two overlapping fixed-size moves cover every length from sizeof(Part) to twice that without a
// loop and without touching a byte outside.
template <class Part>
void copy_ends(std::byte* target, const std::byte* source, uint64_t bytes) {
  Part head;
  Part tail;
  std::memcpy(&head, source, sizeof head);
  std::memcpy(&tail, source + bytes - sizeof tail, sizeof tail);
  std::memcpy(target, &head, sizeof head);
  std::memcpy(target + bytes - sizeof tail, &tail, sizeof tail);
}

void copy_run(std::byte* target, const std::byte* source, uint64_t bytes) {
  if (bytes > 128) {
    std::memcpy(target, source, bytes);
  } else if (bytes > 64) {
    copy_ends<Bytes32>(target, source, 64);
    copy_ends<Bytes32>(target + bytes - 64, source + bytes - 64, 64);
  } else if (bytes >= 32) {
    copy_ends<Bytes32>(target, source, bytes);
  } else if (bytes >= 16) {
    copy_ends<Bytes16>(target, source, bytes);
  } else if (bytes >= 8) {
    copy_ends<uint64_t>(target, source, bytes);
  } else if (bytes >= 4) {
    copy_ends<uint32_t>(target, source, bytes);
  } else {
    for (uint64_t i = 0; i < bytes; ++i) target[i] = source[i];
  }
}

void prefetch_run(const std::byte* source, const Run& run) {
  if (run.source == Run::kZeros) return;
  const std::byte* p = source + run.source;
  const std::byte* end = p + std::min(run.bytes, kPrefetchBytes);
  for (; p < end; p += kLine) __builtin_prefetch(p);
  __builtin_prefetch(end - 1);
}

void execute(const std::byte* source, std::byte* target, std::span<const Run> runs) {
  const size_t ahead = std::min(kPrefetchRuns, runs.size());
  for (size_t i = 0; i < ahead; ++i) prefetch_run(source, runs[i]);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i + ahead < runs.size()) prefetch_run(source, runs[i + ahead]);
    const Run& run = runs[i];
    if (run.source == Run::kZeros) {
      std::memset(target + run.target, 0, run.bytes);
    } else {
      copy_run(target + run.target, source + run.source, run.bytes);
    }
  }
}

}  // namespace

void gather_cpu(const std::byte* source, std::byte* target, const Plan& plan,
                base::ThreadPool& pool) {
  const std::span<const Run> runs = plan.runs();
  const uint64_t tasks =
      std::min<uint64_t>({pool.size() * 4, plan.copied_bytes() / kBytesPerTask, runs.size()});
  if (tasks < 2 || pool.size() < 2) {
    execute(source, target, runs);
    return;
  }
  pool.parallel_for(tasks, [&](size_t task) {
    const size_t begin = runs.size() * task / tasks;
    const size_t end = runs.size() * (task + 1) / tasks;
    execute(source, target, runs.subspan(begin, end - begin));
  });
}

}  // namespace gear::collect

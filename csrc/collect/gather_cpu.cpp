#include "collect/gather_cpu.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

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

// One output of a window: where a row of it comes from and goes to.
struct Lane {
  uint64_t column_offset;
  uint64_t step_bytes;
  std::byte* target;
};

// One that converts on the way.
struct CastLane {
  Lane lane;
  uint64_t row_values;
  uint64_t row_bytes;  // delivered
  Cast cast;
  float scale;
};

class WindowGather {
 public:
  WindowGather(const std::byte* source, const store::PageLayout& pages, const Batch& batch,
               size_t window)
      : source_(source), page_bytes_(pages.page_bytes) {
    const BatchLayout& layout = *batch.layout;
    for (size_t o : layout.windows[window].outputs) {
      const size_t column = layout.outputs[o].column;
      const Lane lane{pages.column_offset[column], pages.step_bytes[column],
                      batch.block.get() + layout.data[o]};
      if (layout.casts[o] == Cast::kNone) {
        lanes_.push_back(lane);
      } else {
        casts_.push_back({lane, layout.row_bytes[o] / dtype_bytes(layout.dtypes[o]),
                          layout.row_bytes[o], layout.casts[o], layout.outputs[o].scale});
      }
    }
  }

  void execute(std::span<const Run> runs) const {
    const size_t ahead = std::min(kPrefetchRuns, runs.size());
    for (size_t i = 0; i < ahead; ++i) prefetch(runs[i]);
    for (size_t i = 0; i < runs.size(); ++i) {
      if (i + ahead < runs.size()) prefetch(runs[i + ahead]);
      move(runs[i]);
    }
  }

 private:
  const std::byte* address(const Run& run, const Lane& lane) const {
    return source_ + run.page * page_bytes_ + lane.column_offset + run.row * lane.step_bytes;
  }

  // Inlined by force: seen as a function, it has no effect and GCC drops the call.
  [[gnu::always_inline]] void prefetch(const Run& run) const {
    if (run.page == store::kNone) return;
    for (const Lane& lane : lanes_) prefetch(run, lane);
    for (const CastLane& cast : casts_) prefetch(run, cast.lane);
  }

  [[gnu::always_inline]] void prefetch(const Run& run, const Lane& lane) const {
    const std::byte* p = address(run, lane);
    const std::byte* last = p + std::min(run.count * lane.step_bytes, kPrefetchBytes) - 1;
    for (; p < last; p += kLine) __builtin_prefetch(p);
    __builtin_prefetch(last);
  }

  void move(const Run& run) const {
    for (const Lane& lane : lanes_) {
      std::byte* target = lane.target + run.target * lane.step_bytes;
      const uint64_t bytes = run.count * lane.step_bytes;
      if (run.page == store::kNone) {
        std::memset(target, 0, bytes);
      } else {
        copy_run(target, address(run, lane), bytes);
      }
    }
    for (const CastLane& cast : casts_) {
      std::byte* target = cast.lane.target + run.target * cast.row_bytes;
      if (run.page == store::kNone) {
        std::memset(target, 0, run.count * cast.row_bytes);
      } else {
        cast_values(cast.cast, address(run, cast.lane), target, run.count * cast.row_values,
                    cast.scale);
      }
    }
  }

  const std::byte* source_;
  uint64_t page_bytes_;
  std::vector<Lane> lanes_;
  std::vector<CastLane> casts_;
};

}  // namespace

void gather_cpu(const std::byte* source, const store::PageLayout& pages, const Plan& plan,
                const Batch& batch, base::ThreadPool& pool) {
  const uint64_t num_runs = plan.num_runs();
  // Runs [begin, end) of the plan, counted through its windows.
  const auto execute = [&](uint64_t begin, uint64_t end) {
    uint64_t first = 0;
    for (size_t window = 0; window < plan.num_windows(); ++window) {
      const std::span<const Run> runs = plan.runs(window);
      const uint64_t from = std::clamp(begin, first, first + runs.size()) - first;
      const uint64_t to = std::clamp(end, first, first + runs.size()) - first;
      first += runs.size();
      if (from == to) continue;
      WindowGather(source, pages, batch, window).execute(runs.subspan(from, to - from));
    }
  };
  const uint64_t tasks =
      std::min<uint64_t>({pool.size() * 4, batch.bytes / kBytesPerTask, num_runs});
  if (tasks < 2 || pool.size() < 2) {
    execute(0, num_runs);
    return;
  }
  pool.parallel_for(tasks,
                    [&](size_t t) { execute(num_runs * t / tasks, num_runs * (t + 1) / tasks); });
}

}  // namespace gear::collect

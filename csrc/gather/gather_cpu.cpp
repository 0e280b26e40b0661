#include "gather/gather_cpu.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gear::gather {
namespace {

constexpr uint64_t kLine = 64;
// What is asked for ahead of its copy, into the second-level cache: that takes some 48 lines at
// once where the first takes 24, and a hint beyond those waits in place of being dropped.
constexpr uint64_t kAheadBytes = 32 << 10;
constexpr uint64_t kPrefetchBytes = 4 << 10;  // of one run; the hardware prefetcher takes over then
// A task moves about this much, of every window: what two windows share is in the core's cache
// then.
constexpr uint64_t kBytesPerTask = 1 << 19;
// A batch from here on leaves the caches before it is read: its data goes past them.
constexpr uint64_t kStreamFrom = 8 << 20;
constexpr uint64_t kStreamRun = 1 << 10;  // of a shorter run, lines that it shares would cost more

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
    for (uint64_t i = 0; i < bytes; ++i) {
      target[i] = source[i];
    }
  }
}

// Copies by stores that do not read the target's lines first nor keep them in a cache; the caller
// ends with end_streaming().
using Stream = void (*)(std::byte* target, const std::byte* source, uint64_t bytes);

void stream_portable(std::byte* target, const std::byte* source, uint64_t bytes) {
  std::memcpy(target, source, bytes);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void stream_avx2(std::byte* target, const std::byte* source,
                                         uint64_t bytes) {
  const uint64_t head = std::min(bytes, -reinterpret_cast<uintptr_t>(target) % kLine);
  std::memcpy(target, source, head);
  uint64_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    const auto* from = reinterpret_cast<const __m256i*>(source + done);
    auto* to = reinterpret_cast<__m256i*>(target + done);
    const __m256i first = _mm256_loadu_si256(from);
    const __m256i second = _mm256_loadu_si256(from + 1);
    _mm256_stream_si256(to, first);
    _mm256_stream_si256(to + 1, second);
  }
  std::memcpy(target + done, source + done, bytes - done);
}
#endif

#if defined(__x86_64__)
const Stream kStream = __builtin_cpu_supports("avx2") ? stream_avx2 : stream_portable;
#else
const Stream kStream = stream_portable;
#endif

// Streaming stores are ordered by nothing else, not even by a release.
void end_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// One output of a window: where a row of it comes from and goes to.
struct Lane {
  uint64_t offset;  // of row 0 of page 0 in the source
  uint64_t step_bytes;
  std::byte* target;
  uint64_t row_bytes = 0;  // delivered; as what follows, of one that converts on the way
  uint64_t row_values = 0;
  plan::Cast cast = plan::Cast::kNone;
  float scale = 1.0F;
};

class WindowGather {
 public:
  // `bytes`: that are moved in all.
  WindowGather(const std::byte* source, uint64_t page_bytes, uint64_t bytes)
      : source_(source), page_bytes_(page_bytes), streams_(bytes >= kStreamFrom) {}

  void add(const Lane& lane) { lanes_.push_back(lane); }

  // To output `o` of the batch.
  void add_output(const plan::Batch& batch, size_t o, uint64_t offset, uint64_t step_bytes) {
    const plan::BatchLayout& layout = *batch.layout;
    const uint64_t row_bytes = layout.row_bytes[o];
    (layout.casts[o] == plan::Cast::kNone ? lanes_ : casts_)
        .push_back({offset, step_bytes, batch.block.get() + layout.data[o], row_bytes,
                    row_bytes / dtype_bytes(layout.dtypes[o]), layout.casts[o],
                    layout.outputs[o].scale});
  }

  void execute(std::span<const plan::Run> runs) const {
    uint64_t step_bytes = 0;
    uint64_t lines = 0;  // that the rows of one run share with others
    for (const std::vector<Lane>* lanes : {&lanes_, &casts_}) {
      for (const Lane& lane : *lanes) {
        step_bytes += lane.step_bytes;
        lines += kLine;
      }
    }
    size_t asked = 0;
    uint64_t ahead = 0;  // bytes of runs [i, asked)
    for (size_t i = 0; i < runs.size(); ++i) {
      for (; asked < runs.size() && ahead < kAheadBytes; ++asked) {
        prefetch(runs[asked]);
        ahead += runs[asked].count * step_bytes + lines;
      }
      move(runs[i]);
      ahead -= runs[i].count * step_bytes + lines;
    }
    if (streams_) {
      end_streaming();
    }
  }

 private:
  const std::byte* address(const plan::Run& run, const Lane& lane) const {
    return source_ + run.page * page_bytes_ + lane.offset + run.row * lane.step_bytes;
  }

  // Inlined by force: seen as a function, it has no effect and GCC drops the call.
  [[gnu::always_inline]] void prefetch(const plan::Run& run) const {
    if (run.page == store::kNone) {
      return;
    }
    for (const Lane& lane : lanes_) {
      prefetch(run, lane);
    }
    for (const Lane& lane : casts_) {
      prefetch(run, lane);
    }
  }

  [[gnu::always_inline]] void prefetch(const plan::Run& run, const Lane& lane) const {
    constexpr int kSecondLevel = 2;
    const std::byte* p = address(run, lane);
    const std::byte* last = p + std::min(run.count * lane.step_bytes, kPrefetchBytes) - 1;
    for (; p < last; p += kLine) {
      __builtin_prefetch(p, 0, kSecondLevel);
    }
    __builtin_prefetch(last, 0, kSecondLevel);
  }

  void move(const plan::Run& run) const {
    for (const Lane& lane : lanes_) {
      std::byte* target = lane.target + run.target * lane.step_bytes;
      const uint64_t bytes = run.count * lane.step_bytes;
      if (run.page == store::kNone) {
        std::memset(target, 0, bytes);
      } else if (streams_ && bytes >= kStreamRun) {
        kStream(target, address(run, lane), bytes);
      } else {
        copy_run(target, address(run, lane), bytes);
      }
    }
    for (const Lane& lane : casts_) {
      std::byte* target = lane.target + run.target * lane.row_bytes;
      if (run.page == store::kNone) {
        std::memset(target, 0, run.count * lane.row_bytes);
      } else {
        plan::cast_values(lane.cast, address(run, lane), target, run.count * lane.row_values,
                          lane.scale);
      }
    }
  }

  const std::byte* source_;
  uint64_t page_bytes_;
  bool streams_;
  std::vector<Lane> lanes_;
  std::vector<Lane> casts_;  // those that convert
};

// Splits the runs of every window over the pool; make(window) says what to do with them.
template <class Make>
void move_runs(const plan::Plan& plan, uint64_t bytes, base::ThreadPool& pool, Make make) {
  const uint64_t most_tasks = bytes < kSplitBytes ? 1 : bytes / kBytesPerTask;
  const uint64_t tasks = std::clamp<uint64_t>(plan.num_runs(), 1, most_tasks);
  pool.parallel_for(tasks, [&](size_t t) {
    for (size_t window = 0; window < plan.num_windows(); ++window) {
      const std::span<const plan::Run> runs = plan.runs(window);
      const size_t from = runs.size() * t / tasks;
      const size_t to = runs.size() * (t + 1) / tasks;
      if (from == to) {
        continue;
      }
      make(window).execute(runs.subspan(from, to - from));
    }
  });
}

}  // namespace

void gather_cpu(const std::byte* source, const store::PageLayout& pages, const plan::Plan& plan,
                const plan::Batch& batch, base::ThreadPool& pool) {
  const plan::BatchLayout& layout = *batch.layout;
  move_runs(plan, batch.bytes, pool, [&](size_t window) {
    WindowGather gather(source, pages.page_bytes, batch.bytes);
    for (const size_t o : layout.windows[window].outputs) {
      const size_t column = layout.outputs[o].column;
      gather.add_output(batch, o, pages.column_offset[column], pages.step_bytes[column]);
    }
    return gather;
  });
}

void pack_cpu(const std::byte* source, const store::PageLayout& pages,
              const plan::BatchLayout& layout, const plan::Plan& plan, const plan::PackedRows& rows,
              std::byte* out, base::ThreadPool& pool) {
  move_runs(plan, rows.bytes, pool, [&](size_t window) {
    WindowGather gather(source, pages.page_bytes, rows.bytes);
    uint64_t next = 0;  // offsets ascend, but for those of outputs that share the rows of another
    for (const size_t o : layout.windows[window].outputs) {
      if (rows.offset[o] < next) {
        continue;
      }
      next = rows.offset[o] + 1;
      const size_t column = layout.outputs[o].column;
      gather.add({pages.column_offset[column], pages.step_bytes[column], out + rows.offset[o]});
    }
    return gather;
  });
}

void unpack_cpu(const std::byte* source, const plan::PackedRows& rows,
                const store::PageLayout& pages, const plan::Plan& plan, const plan::Batch& batch,
                base::ThreadPool& pool) {
  const plan::BatchLayout& layout = *batch.layout;
  move_runs(plan, rows.bytes, pool, [&](size_t window) {
    WindowGather gather(source, 0, batch.bytes);
    for (const size_t o : layout.windows[window].outputs) {
      gather.add_output(batch, o, rows.offset[o], pages.step_bytes[layout.outputs[o].column]);
    }
    return gather;
  });
}

}  // namespace gear::gather

#include "gather/gather_cpu.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/threads/prefetch.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gear::gather {
namespace {

constexpr uint64_t kLine = 64;
// What is asked for ahead of its copy (base/threads/prefetch.h).
constexpr uint64_t kAheadBytes = 32 << 10;
// Of runs of one step, so many are moved column by column: each column's length is looked at once.
constexpr size_t kStepsAtOnce = 32;
constexpr uint64_t kPrefetchBytes = 4 << 10;  // of one run; the hardware prefetcher takes over then
// A task moves about this much, of every window: what two windows share is in the core's cache
// then.
constexpr uint64_t kBytesPerTask = 1 << 19;
// A batch from here on leaves the caches before it is read: its data goes past them.
constexpr uint64_t kStreamFrom = 8 << 20;
constexpr uint64_t kStreamRun = 1 << 10;  // of a shorter run, lines that it shares would cost more

// So many bytes, moved at once, at any address; where a processor's vectors are shorter, in parts.
template <size_t kBytes>
struct [[gnu::packed, gnu::may_alias]] Bytes {
  using Vector [[gnu::vector_size(kBytes)]] = unsigned char;
  Vector bytes;
};

// Two overlapping moves cover every length from kBytes to twice that without a loop and without
// touching a byte outside.
template <size_t kBytes>
[[gnu::always_inline]] inline void copy_ends(std::byte* target, const std::byte* source,
                                             uint64_t bytes) {
  using At = Bytes<kBytes>;
  const uint64_t last = bytes - kBytes;
  const typename At::Vector head = reinterpret_cast<const At*>(source)->bytes;
  const typename At::Vector tail = reinterpret_cast<const At*>(source + last)->bytes;
  reinterpret_cast<At*>(target)->bytes = head;
  reinterpret_cast<At*>(target + last)->bytes = tail;
}

// By vectors of AVX2: those of twice the length gained nothing on Zen 4.
template <>
[[gnu::always_inline]] inline void copy_ends<64>(std::byte* target, const std::byte* source,
                                                 uint64_t bytes) {
  copy_ends<32>(target, source, 64);
  copy_ends<32>(target + bytes - 64, source + bytes - 64, 64);
}

void copy_run(std::byte* target, const std::byte* source, uint64_t bytes) {
  if (bytes > 128) {
    std::memcpy(target, source, bytes);
  } else if (bytes >= 64) {
    copy_ends<64>(target, source, bytes);
  } else if (bytes >= 32) {
    copy_ends<32>(target, source, bytes);
  } else if (bytes >= 16) {
    copy_ends<16>(target, source, bytes);
  } else if (bytes >= 8) {
    copy_ends<8>(target, source, bytes);
  } else if (bytes >= 4) {
    copy_ends<4>(target, source, bytes);
  } else if (bytes >= 2) {
    copy_ends<2>(target, source, bytes);
  } else if (bytes == 1) {
    copy_ends<1>(target, source, bytes);
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
const bool kAvx2 = __builtin_cpu_supports("avx2");
const Stream kStream = kAvx2 ? stream_avx2 : stream_portable;
#else
const Stream kStream = stream_portable;
#endif

// Streaming stores are ordered by nothing else, not even by a release.
void end_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Where the runs of a plan lie.
struct Pages {
  const std::byte* source;
  uint64_t page_bytes;
};

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

[[gnu::always_inline]] inline const std::byte* address(const Pages& pages, const Lane& lane,
                                                       const plan::Run& run) {
  return pages.source + run.page * pages.page_bytes + lane.offset + run.row * lane.step_bytes;
}

// Moves runs of one step each, all of as many bytes.
using MoveSteps = void (*)(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs);

template <size_t kBytes>
[[gnu::always_inline]] inline void move_ends(const Pages& pages, const Lane& lane,
                                             std::span<const plan::Run> runs) {
  const Pages from = pages;  // in registers, whatever the copies write to
  const Lane to = lane;
  for (const plan::Run& run : runs) {
    std::byte* target = to.target + run.target * to.step_bytes;
    if (run.page == store::kNone) [[unlikely]] {
      std::memset(target, 0, to.step_bytes);
    } else {
      copy_ends<kBytes>(target, address(from, to, run), to.step_bytes);
    }
  }
}

template <size_t kBytes>
void move_steps(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  move_ends<kBytes>(pages, lane, runs);
}

void move_long_steps(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  for (const plan::Run& run : runs) {
    std::byte* target = lane.target + run.target * lane.step_bytes;
    if (run.page == store::kNone) [[unlikely]] {
      std::memset(target, 0, lane.step_bytes);
    } else {
      std::memcpy(target, address(pages, lane, run), lane.step_bytes);
    }
  }
}

#if defined(__x86_64__)
template <size_t kBytes>
[[gnu::target("avx2")]] void move_steps_avx2(const Pages& pages, const Lane& lane,
                                             std::span<const plan::Run> runs) {
  move_ends<kBytes>(pages, lane, runs);
}
const MoveSteps kMoveFrom32 = kAvx2 ? move_steps_avx2<32> : move_steps<32>;
const MoveSteps kMoveFrom64 = kAvx2 ? move_steps_avx2<64> : move_steps<64>;
#else
const MoveSteps kMoveFrom32 = move_steps<32>;
const MoveSteps kMoveFrom64 = move_steps<64>;
#endif

MoveSteps move_steps_of(uint64_t bytes) {
  if (bytes > 128) {
    return move_long_steps;
  }
  if (bytes >= 64) {
    return kMoveFrom64;
  }
  if (bytes >= 32) {
    return kMoveFrom32;
  }
  return bytes >= 16  ? move_steps<16>
         : bytes >= 8 ? move_steps<8>
         : bytes >= 4 ? move_steps<4>
         : bytes >= 2 ? move_steps<2>
                      : move_steps<1>;
}

class WindowGather {
 public:
  // `bytes`: that are moved in all.
  WindowGather(const std::byte* source, uint64_t page_bytes, uint64_t bytes)
      : pages_{source, page_bytes}, streams_(bytes >= kStreamFrom) {}

  void add(const Lane& lane) {
    const uint64_t factor = lane.step_bytes & -lane.step_bytes;
    lanes_.push_back(
        {lane, move_steps_of(lane.step_bytes), std::min(factor, store::PageLayout::kColumnAlign)});
    step_bytes_ += lane.step_bytes;
    shared_bytes_ += kLine;
  }

  // To output `o` of the batch.
  void add_output(const plan::Batch& batch, size_t o, uint64_t offset, uint64_t step_bytes) {
    const plan::BatchLayout& layout = *batch.layout;
    const uint64_t row_bytes = layout.row_bytes[o];
    const Lane lane{offset,
                    step_bytes,
                    batch.block.get() + layout.data[o],
                    row_bytes,
                    row_bytes / dtype_bytes(layout.dtypes[o]),
                    layout.casts[o],
                    layout.outputs[o].scale};
    add(lane);
    if (lane.cast != plan::Cast::kNone) {
      lanes_.back().move_steps = move_casts;
    }
  }

  void execute(std::span<const plan::Run> runs) const {
    size_t asked = 0;
    uint64_t ahead = 0;  // bytes of runs [i, asked)
    for (size_t i = 0; i < runs.size();) {
      while (asked < runs.size() && ahead < kAheadBytes) {
        const std::span<const plan::Run> next = moved_at_once(runs.subspan(asked));
        prefetch(next);
        ahead += bytes_of(next);
        asked += next.size();
      }
      const std::span<const plan::Run> these = moved_at_once(runs.subspan(i));
      move(these);
      ahead -= bytes_of(these);
      i += these.size();
    }
    if (streams_) {
      end_streaming();
    }
  }

 private:
  struct Moved : Lane {
    MoveSteps move_steps;
    uint64_t aligned;  // every row begins at a multiple of it
  };

  // The first runs if they are of one step each, which are moved column by column; else one run.
  static std::span<const plan::Run> moved_at_once(std::span<const plan::Run> runs) {
    size_t count = 0;
    while (count < std::min(kStepsAtOnce, runs.size()) && runs[count].count == 1) {
      ++count;
    }
    return runs.first(std::max<size_t>(count, 1));
  }

  // And of the cache lines at its ends, which each run shares with others.
  uint64_t bytes_of(std::span<const plan::Run> runs) const {
    return runs.size() * (runs[0].count * step_bytes_ + shared_bytes_);
  }

  // Inlined by force: seen as a function, it has no effect and GCC drops the call.
  [[gnu::always_inline]] void prefetch(std::span<const plan::Run> runs) const {
    for (const Moved& lane : lanes_) {
      const uint64_t last = std::min(runs[0].count * lane.step_bytes, kPrefetchBytes) - 1;
      for (const plan::Run& run : runs) {
        if (run.page == store::kNone) {
          continue;
        }
        const std::byte* first = address(pages_, lane, run);
        // What is less than the rows' alignment away from the last byte lies in its line.
        for (uint64_t line = 0; line + lane.aligned <= last; line += kLine) {
          base::prefetch(first + line);
        }
        base::prefetch(first + last);
      }
    }
  }

  void move(std::span<const plan::Run> runs) const {
    const uint64_t count = runs[0].count;
    for (const Moved& lane : lanes_) {
      if (count == 1 && !streams(lane.step_bytes)) {
        lane.move_steps(pages_, lane, runs);
        continue;
      }
      for (const plan::Run& run : runs) {
        move_run(lane, run);
      }
    }
  }

  static void move_casts(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
    for (const plan::Run& run : runs) {
      std::byte* target = lane.target + run.target * lane.row_bytes;
      if (run.page == store::kNone) {
        std::memset(target, 0, run.count * lane.row_bytes);
      } else {
        plan::cast_values(lane.cast, address(pages, lane, run), target, run.count * lane.row_values,
                          lane.scale);
      }
    }
  }

  bool streams(uint64_t bytes) const { return streams_ && bytes >= kStreamRun; }

  void move_run(const Lane& lane, const plan::Run& run) const {
    if (lane.cast != plan::Cast::kNone) {
      move_casts(pages_, lane, {&run, 1});
      return;
    }
    std::byte* target = lane.target + run.target * lane.step_bytes;
    const uint64_t bytes = run.count * lane.step_bytes;
    if (run.page == store::kNone) {
      std::memset(target, 0, bytes);
    } else if (streams(bytes)) {
      kStream(target, address(pages_, lane, run), bytes);
    } else {
      copy_run(target, address(pages_, lane, run), bytes);
    }
  }

  Pages pages_;
  bool streams_;
  std::vector<Moved> lanes_;
  uint64_t step_bytes_ = 0;    // of all lanes
  uint64_t shared_bytes_ = 0;  // of lines that a run shares with others
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

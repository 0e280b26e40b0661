#include "gather/gather_cpu.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/numbers/simd.h"
#include "base/threads/prefetch.h"
#include "plan/fold.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gear::gather {
namespace {

constexpr uint64_t kLine = 64;
// What is asked for ahead of its copy (base/threads/prefetch.h).
constexpr uint64_t kAheadBytes = 32 << 10;
// Runs of one step are moved column by column, in groups: so many runs, and about so many bytes of
// all columns, since a group is asked for while the one before it is copied.
constexpr size_t kGroupRuns = 32;
constexpr uint64_t kGroupBytes = 8 << 10;
constexpr uint64_t kPrefetchBytes = 4 << 10;  // of one run; the hardware prefetcher takes over then
// A task moves about this much, of every window: what two windows share is in the core's cache
// then.
constexpr uint64_t kBytesPerTask = 1 << 19;
// A batch from here on leaves the caches before it is read: its data goes past them.
constexpr uint64_t kStreamFrom = 8 << 20;
constexpr uint64_t kStreamRun = 1 << 10;  // of a shorter run, lines that it shares would cost more

// kBytes bytes, at any address.
template <size_t kBytes>
struct [[gnu::packed, gnu::may_alias]] Bytes {
  using Vector [[gnu::vector_size(kBytes)]] = unsigned char;
  Vector bytes;
};

// Two overlapping moves cover every length from kBytes to twice that without a loop and without
// touching a byte outside; each is one instruction up to kVector bytes.
template <size_t kBytes, size_t kVector>
[[gnu::always_inline]] inline void copy_ends(std::byte* target, const std::byte* source,
                                             uint64_t bytes) {
  const uint64_t last = bytes - kBytes;
  if constexpr (kBytes > kVector) {
    copy_ends<kBytes / 2, kVector>(target, source, kBytes);
    copy_ends<kBytes / 2, kVector>(target + last, source + last, kBytes);
  } else {
    using At = Bytes<kBytes>;
    const typename At::Vector head = reinterpret_cast<const At*>(source)->bytes;
    const typename At::Vector tail = reinterpret_cast<const At*>(source + last)->bytes;
    reinterpret_cast<At*>(target)->bytes = head;
    reinterpret_cast<At*>(target + last)->bytes = tail;
  }
}

constexpr uint64_t kLongest = 128;  // length that copy_ends covers
template <size_t kBytes>
using Length = std::integral_constant<size_t, kBytes>;

// use(Length<n>) with the n whose ends cover so many bytes, 1 to kLongest.
template <class Use>
[[gnu::always_inline]] inline auto with_ends(uint64_t bytes, const Use& use) {
  return bytes >= 64   ? use(Length<64>())
         : bytes >= 32 ? use(Length<32>())
         : bytes >= 16 ? use(Length<16>())
         : bytes >= 8  ? use(Length<8>())
         : bytes >= 4  ? use(Length<4>())
         : bytes >= 2  ? use(Length<2>())
                       : use(Length<1>());
}

constexpr size_t kSse = 16;
constexpr size_t kAvx2 = 32;  // vectors of 64 bytes gained nothing on Zen 4

void copy_run(std::byte* target, const std::byte* source, uint64_t bytes) {
  if (bytes > kLongest) {
    std::memcpy(target, source, bytes);
  } else if (bytes > 0) {
    with_ends(bytes, [&](auto length) { copy_ends<length(), kSse>(target, source, bytes); });
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

// The items that the rows of a window belong to, where they are folded.
struct FoldedItems {
  std::span<const float> powers;  // by row of the window
  const int32_t* begins;          // packed: row of each item's first step; null: they are padded
  uint64_t items;

  struct Place {
    uint64_t item;
    uint64_t row;  // of its window
  };
  Place place_of(uint32_t target) const {
    if (begins == nullptr) {
      return {target / powers.size(), target % powers.size()};
    }
    const int32_t* const next =
        std::upper_bound(begins, begins + items, static_cast<int32_t>(target));
    const auto item = static_cast<uint64_t>(next - begins - 1);
    return {item, target - static_cast<uint64_t>(begins[item])};
  }
};

// One output of a window: where a row of it comes from and goes to.
struct Lane {
  uint64_t offset;  // of row 0 of page 0 in the source
  uint64_t step_bytes;
  std::byte* target;
  uint64_t row_bytes;  // delivered: other than step_bytes where it converts on the way
  uint64_t row_values = 0;
  plan::Cast cast = plan::Cast::kNone;
  float scale = 1.0F;
  std::optional<FoldedItems> folded = std::nullopt;  // into their items' rows
};

[[gnu::always_inline]] inline const std::byte* address(const Pages& pages, const Lane& lane,
                                                       const plan::Run& run) {
  return pages.source + run.page * pages.page_bytes + lane.offset + run.row * lane.step_bytes;
}

// Moves a lane's part of runs.
using Move = void (*)(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs);

// copy(target, source, lane, run.count) moves what is there.
template <class Copy>
[[gnu::always_inline]] inline void move_by(const Copy& copy, const Pages& all_pages,
                                           const Lane& one_lane, std::span<const plan::Run> runs) {
  const Pages pages = all_pages;  // in registers, whatever the copies write to
  const Lane lane = one_lane;
  for (const plan::Run& run : runs) {
    std::byte* target = lane.target + run.target * lane.row_bytes;
    if (run.page == store::kNone) [[unlikely]] {
      std::memset(target, 0, run.count * lane.row_bytes);
    } else {
      copy(target, address(pages, lane, run), lane, run.count);
    }
  }
}

// Of runs of one step, all of as many bytes.
template <size_t kBytes, size_t kVector>
struct CopyStep {
  [[gnu::always_inline]] void operator()(std::byte* target, const std::byte* source,
                                         const Lane& lane, uint32_t) const {
    copy_ends<kBytes, kVector>(target, source, lane.step_bytes);
  }
};

template <size_t kBytes>
void move_steps(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  move_by(CopyStep<kBytes, kSse>(), pages, lane, runs);
}

#if defined(__x86_64__)
template <size_t kBytes>
[[gnu::target("avx2")]] void move_steps_avx2(const Pages& pages, const Lane& lane,
                                             std::span<const plan::Run> runs) {
  move_by(CopyStep<kBytes, kAvx2>(), pages, lane, runs);
}
#endif

void move_runs_of_steps(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  const auto copy = [](std::byte* to, const std::byte* from, const Lane& of, uint32_t count) {
    copy_run(to, from, count * of.step_bytes);
  };
  move_by(copy, pages, lane, runs);
}

void move_past_caches(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  static const Stream stream = base::pick(stream_portable, GEAR_X86(stream_avx2));
  const auto copy = [](std::byte* to, const std::byte* from, const Lane& of, uint32_t count) {
    const uint64_t bytes = count * of.step_bytes;
    (bytes >= kStreamRun ? stream : copy_run)(to, from, bytes);
  };
  move_by(copy, pages, lane, runs);
}

void move_converting(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  const auto copy = [](std::byte* to, const std::byte* from, const Lane& of, uint32_t count) {
    plan::cast_values(of.cast, from, to, count * of.row_values, of.scale);
  };
  move_by(copy, pages, lane, runs);
}

// All runs of an item, in order: the first of them begins its row.
void move_folding(const Pages& pages, const Lane& lane, std::span<const plan::Run> runs) {
  const FoldedItems& items = *lane.folded;
  for (const plan::Run& run : runs) {
    const FoldedItems::Place place = items.place_of(run.target);
    auto* const sums = reinterpret_cast<float*>(lane.target + place.item * lane.row_bytes);
    if (place.row == 0) {
      std::fill_n(sums, lane.row_values, 0.0F);
    }
    if (run.page == store::kNone) {
      continue;
    }
    const auto* values = reinterpret_cast<const float*>(address(pages, lane, run));
    for (uint32_t i = 0; i < run.count; ++i) {
      const float power = items.powers[place.row + i];
      for (uint64_t v = 0; v < lane.row_values; ++v) {
        sums[v] = plan::folded(sums[v], power, *values++);
      }
    }
  }
}

// The fastest way to move runs of one step of so many bytes.
Move choose_move_of_steps(uint64_t step_bytes) {
  if (step_bytes > kLongest) {
    return move_runs_of_steps;
  }
  return with_ends(step_bytes, [](auto length) -> Move {
    if constexpr (length() > kSse) {
      return base::pick(move_steps<length()>, GEAR_X86(move_steps_avx2<length()>));
    }
    return move_steps<length()>;
  });
}

class WindowGather {
 public:
  // `bytes`: moved in all.
  WindowGather(const std::byte* source, uint64_t page_bytes, uint64_t bytes)
      : pages_{source, page_bytes}, streams_(bytes >= kStreamFrom) {}

  void add(const Lane& lane) {
    const uint64_t factor = lane.step_bytes & -lane.step_bytes;
    const bool copies = lane.cast == plan::Cast::kNone && !lane.folded;
    const Move runs = lane.folded ? move_folding
                      : !copies   ? move_converting
                      : streams_  ? move_past_caches
                                  : move_runs_of_steps;
    const bool chosen = !copies || (streams_ && lane.step_bytes >= kStreamRun);
    if (lane.folded) {
      folded_ = lane.folded;
    }
    columns_.push_back({lane, runs, chosen ? runs : choose_move_of_steps(lane.step_bytes),
                        std::min(factor, store::PageLayout::kColumnAlign)});
    step_bytes_ += lane.step_bytes;
    shared_bytes_ += kLine;
    group_runs_ = std::clamp<size_t>(kGroupBytes / (step_bytes_ + shared_bytes_), 1, kGroupRuns);
  }

  // To output `o` of the batch.
  void add_output(const plan::Batch& batch, size_t o, uint64_t offset, uint64_t step_bytes) {
    const plan::BatchLayout& layout = *batch.layout;
    const plan::BatchLayout::ColumnOutput& output = layout.outputs[o];
    const uint64_t row_bytes = layout.row_bytes[o];
    Lane lane{offset,
              step_bytes,
              batch.block.get() + layout.data[o],
              row_bytes,
              row_bytes / dtype_bytes(layout.dtypes[o]),
              layout.casts[o],
              output.scale};
    if (output.fold) {
      const uint64_t cu_seqlens = layout.windows[layout.window_of[o]].cu_seqlens;
      lane.folded = {output.powers, layout.packed ? batch.at<int32_t>(cu_seqlens) : nullptr,
                     batch.items};
    }
    add(lane);
  }

  // Run i, or the first one behind it where the runs may be cut in two: rows of one item that are
  // folded stay together.
  size_t cut(std::span<const plan::Run> runs, size_t i) const {
    const auto same_item = [&] {
      return folded_->place_of(runs[i].target).item == folded_->place_of(runs[i - 1].target).item;
    };
    while (folded_ && i > 0 && i < runs.size() && same_item()) {
      ++i;
    }
    return i;
  }

  void execute(std::span<const plan::Run> runs) const {
    size_t asked = 0;
    uint64_t ahead = 0;  // bytes of runs [i, asked)
    for (size_t i = 0; i < runs.size();) {
      while (asked < runs.size() && ahead < kAheadBytes) {
        const std::span<const plan::Run> group = first_group(runs.subspan(asked));
        prefetch(group);
        ahead += bytes_of(group);
        asked += group.size();
      }
      const std::span<const plan::Run> group = first_group(runs.subspan(i));
      for (const Column& column : columns_) {
        (group[0].count == 1 ? column.move_steps : column.move_runs)(pages_, column, group);
      }
      ahead -= bytes_of(group);
      i += group.size();
    }
    if (streams_) {
      end_streaming();
    }
  }

 private:
  struct Column : Lane {
    Move move_runs;
    Move move_steps;   // of one step each
    uint64_t aligned;  // every row of a page begins at a multiple of it
  };

  // Runs of one step each, or one other.
  std::span<const plan::Run> first_group(std::span<const plan::Run> runs) const {
    size_t count = 0;
    while (count < std::min(group_runs_, runs.size()) && runs[count].count == 1) {
      ++count;
    }
    return runs.first(std::max<size_t>(count, 1));
  }

  // What a group moves, and the rest of the cache lines at the ends of its rows.
  uint64_t bytes_of(std::span<const plan::Run> group) const {
    return group.size() * (group[0].count * step_bytes_ + shared_bytes_);
  }

  // Inlined by force: seen as a function, it has no effect and GCC drops the call.
  [[gnu::always_inline]] void prefetch(std::span<const plan::Run> group) const {
    for (const Column& column : columns_) {
      const uint64_t last = std::min(group[0].count * column.step_bytes, kPrefetchBytes) - 1;
      for (const plan::Run& run : group) {
        if (run.page == store::kNone) {
          continue;
        }
        const std::byte* first = address(pages_, column, run);
        // What is less than the rows' alignment away from the last byte lies in its line.
        for (uint64_t line = 0; line + column.aligned <= last; line += kLine) {
          base::prefetch(first + line);
        }
        base::prefetch(first + last);
      }
    }
  }

  Pages pages_;
  bool streams_;
  std::vector<Column> columns_;
  std::optional<FoldedItems> folded_;
  uint64_t step_bytes_ = 0;    // of all columns
  uint64_t shared_bytes_ = 0;  // of lines that a row shares with others, at most
  size_t group_runs_ = kGroupRuns;
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
      const WindowGather gather = make(window);
      const size_t begin = gather.cut(runs, from);
      gather.execute(runs.subspan(begin, gather.cut(runs, to) - begin));
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
      const uint64_t step_bytes = pages.step_bytes[column];
      gather.add({pages.column_offset[column], step_bytes, out + rows.offset[o], step_bytes});
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

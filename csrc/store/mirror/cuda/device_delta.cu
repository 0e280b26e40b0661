#include <cmath>

#include "base/cuda/last_block.cuh"
#include "store/mirror/cuda/device_scale.cuh"
#include "store/page_layout.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 16;
constexpr uint64_t kPartBytes = 256 << 10;
constexpr uint64_t kWarps = 16;  // of a block: all of which a change of scale needs
constexpr uint64_t kMostRecords = PageLayout::kMaxPageSteps / PageDelta::kMaxRows;
static_assert(PageLayout::kMaxPageSteps * sizeof(float) + kMostRecords * sizeof(PageDelta) +
                      kMaxDrawables * (kMostRecords + PageLayout::kMaxPageSteps / 64) *
                          sizeof(uint64_t) <=
                  kPartBytes,
              "the largest page fits one part");

// What a record says of a set of steps: how many of the page, and the bits of its rows.
__device__ const uint64_t* words_of(const PageDelta& delta, const uint64_t* words, int steps) {
  return words + delta.first_word + static_cast<unsigned>(steps) * (1 + delta.num_words());
}

// Weighs 32 rows from `first` on anew where they may be drawn now and not before, the other way
// about, or hold a new step; `word` is theirs of the record.
__device__ void weigh_rows(const DeviceTables& tables, const PageDelta& delta,
                           const uint64_t* words, unsigned word, unsigned first, float priority,
                           bool is_new) {
  const unsigned row = first + static_cast<unsigned>(lane_id());
  const uint64_t base = uint64_t{delta.number} * tables.page_steps;
  const uint64_t place = uint64_t{delta.number} * tables.words_per_page + delta.begin / 64 + word;
  for (int i = 0; i < tables.num_weights; ++i) {
    const DeviceTables::Weights& weights = tables.weights[i];
    const bool was = tables.steps[weights.steps].words[place] >> row % 64 & 1;
    const bool is = words_of(delta, words, weights.steps)[1 + word] >> row % 64 & 1;
    uint64_t gained = 0;
    if (was != is || (is && is_new)) {
      bool saturated = false;
      uint64_t* leaf = weights.tree.levels[0] + base + row;
      const uint64_t after = is ? fixed_weight(priority, *weights.scale, saturated) : 0;
      gained = after - *leaf;
      *leaf = after;
      if (saturated) {
        atomicAdd(&tables.scalars->saturated_weights, 1ULL);
      }
    }
    if (__any_sync(kWholeWarp, gained != 0)) {
      warp_add_run(weights.tree, base + first, gained);
    }
  }
}

// The rows of one record: priorities, and whether and with what weight they may be drawn. Every row
// belongs to one warp of the kernel.
__device__ void apply_rows(const DeviceTables& tables, const PageDelta& delta,
                           const uint64_t* words, const float* values) {
  const uint64_t base = uint64_t{delta.number} * tables.page_steps;
  const unsigned sent_from = delta.begin > delta.kept ? delta.begin : delta.kept;
  const bool follows = tables.priorities != nullptr;
  const float largest = follows ? tables.scalars->max_priority[tables.largest] : 0.0F;
  for (unsigned first = delta.begin; first < delta.end && follows; first += kWarpSize) {
    const unsigned row = first + static_cast<unsigned>(lane_id());
    const bool mine = row < delta.end;
    const bool is_new = mine && row >= delta.kept && row < delta.page.rows;
    float priority = mine ? tables.priorities[base + row] : 0.0F;
    if (is_new) {
      priority = resolve_value(values[delta.first_value + row - sent_from], largest);
      tables.priorities[base + row] = priority;
    }
    weigh_rows(tables, delta, words, (first - delta.begin) / 64, first, priority, is_new);
  }
  __syncwarp();  // all have seen which rows could be drawn before
  const uint64_t place = uint64_t{delta.number} * tables.words_per_page + delta.begin / 64;
  for (int i = 0; i < tables.num_steps; ++i) {
    const uint64_t* now = words_of(delta, words, i) + 1;
    for (unsigned word = static_cast<unsigned>(lane_id()); word < delta.num_words();
         word += kWarpSize) {
      tables.steps[i].words[place + word] = now[word];
    }
  }
}

// Warps [0, num_pages) take a record of a page each, those behind 32 episodes each.
__global__ void apply_delta(const __grid_constant__ DeviceTables tables, const std::byte* data,
                            const DeltaRound round, float index_largest, bool last) {
  const uint64_t warp = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  const auto* words = reinterpret_cast<const uint64_t*>(data + round.words_offset());
  if (warp < round.num_pages) {
    const PageDelta& delta = reinterpret_cast<const PageDelta*>(data)[warp];
    if (delta.first) {
      const Page page = delta.page;
      if (lane_id() == 0) {
        tables.pages[delta.number] = page;
      }
      for (int i = 0; i < tables.num_steps; ++i) {
        warp_set(tables.steps[i].counts, delta.number, words_of(delta, words, i)[0]);
      }
      warp_set(tables.heads, delta.number, delta.head ? 1 : 0);
    }
    apply_rows(tables, delta, words, reinterpret_cast<const float*>(data + round.values_offset()));
  } else {
    const uint64_t i = (warp - round.num_pages) * kWarpSize + static_cast<unsigned>(lane_id());
    if (i < round.num_episodes) {
      const EpisodeDelta& delta =
          reinterpret_cast<const EpisodeDelta*>(data + round.episodes_offset())[i];
      tables.episodes[delta.number] = {delta.begin, delta.end, delta.closing_columns, delta.state};
      if (tables.priorities != nullptr && delta.weight_set) {
        tables.episode_weights[delta.number] = delta.weight;
      }
    }
  }
  if (!last || tables.priorities == nullptr) {
    return;
  }
  const float before = tables.scalars->max_priority[tables.largest];
  const float largest = before > index_largest ? before : index_largest;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    tables.scalars->max_priority[1 - tables.largest] = largest;
  }
  if (scales_may_move(tables, largest) && base::is_last_block(&tables.scalars->blocks_done)) {
    follow_largest(tables, largest);
  }
}

// Minima above the rows of a round: of the lowest level a warp a record, of the others by one
// block.
__global__ void refresh_least_of_rows(const __grid_constant__ DeviceTables tables,
                                      const std::byte* data, const DeltaRound round, int last) {
  const auto refresh = [&](int level, uint64_t first_warp, uint64_t warps) {
    const int shift = DeviceTree::kFanoutBits * level;
    for (uint64_t i = first_warp; i < round.num_pages; i += warps) {
      const PageDelta& delta = reinterpret_cast<const PageDelta*>(data)[i];
      const uint64_t base = uint64_t{delta.number} * tables.page_steps;
      if (delta.begin == delta.end) {
        continue;
      }
      const uint64_t end = ((base + delta.end - 1) >> shift) + 1;
      for (uint64_t node = (base + delta.begin) >> shift; node < end; ++node) {
        refresh_least(tables, level, {static_cast<int64_t>(node)});
      }
    }
  };
  const unsigned warp = threadIdx.x / kWarpSize;
  refresh(1, uint64_t{blockIdx.x} * kWarps + warp, uint64_t{gridDim.x} * kWarps);
  if (last == 1 || !base::is_last_block(&tables.scalars->blocks_done)) {
    return;
  }
  for (int level = 2; level <= last; ++level) {
    refresh(level, warp, kWarps);
    __threadfence_block();
    __syncthreads();
  }
}

}  // namespace

DeltaSender::DeltaSender(Index& index, int device) : encoder_(index), staging_(kParts, device) {
  staging_.reserve(kPartBytes, true);
}

void DeltaSender::send(std::span<const std::shared_ptr<const Drawable>> steps, float index_largest,
                       const DeviceTables& tables, cudaStream_t stream) {
  encoder_.look(steps, tables.priorities != nullptr);
  while (!encoder_.done()) {
    std::byte* part = staging_.acquire(kPartBytes);
    const DeltaRound round = encoder_.next({part, kPartBytes});
    const std::byte* data = staging_.send(round.bytes(), stream);
    const uint64_t warps = round.num_pages + (round.num_episodes + kWarpSize - 1) / kWarpSize;
    apply_delta<<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kWarps * kWarpSize, 0,
                  stream>>>(tables, data, round, index_largest, encoder_.done());
    GEAR_CUDA_TRY(cudaGetLastError());
    if (tables.least_levels() > 0 && round.num_pages > 0) {
      refresh_least_of_rows<<<static_cast<unsigned>((round.num_pages + kWarps - 1) / kWarps),
                              kWarps * kWarpSize, 0, stream>>>(tables, data, round,
                                                               tables.least_levels());
      GEAR_CUDA_TRY(cudaGetLastError());
    }
    staging_.release(stream);
  }
}

}  // namespace gear::store

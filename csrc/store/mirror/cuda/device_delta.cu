#include <cmath>

#include "store/index/fixed_point.h"
#include "store/mirror/cuda/device_delta.h"
#include "store/mirror/cuda/device_tree.cuh"
#include "store/page_layout.h"

namespace gear::store {
namespace {

constexpr size_t kParts = 16;
constexpr uint64_t kPartBytes = 256 << 10;
constexpr uint64_t kWarps = 4;  // of a block
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
      const uint64_t after =
          is ? fixed_weight(priority, weights.alpha, tables.weight_limit, saturated) : 0;
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
  if (last && tables.priorities != nullptr && blockIdx.x == 0 && threadIdx.x == 0) {
    const float before = tables.scalars->max_priority[tables.largest];
    tables.scalars->max_priority[1 - tables.largest] =
        before > index_largest ? before : index_largest;
  }
}

}  // namespace

DeltaSender::DeltaSender(int device) : staging_(kParts, device) {
  staging_.reserve(kPartBytes, true);
}

void DeltaSender::send(DeltaEncoder encoder, float index_largest, const DeviceTables& tables,
                       cudaStream_t stream) {
  while (!encoder.done()) {
    std::byte* part = staging_.acquire(kPartBytes);
    const DeltaRound round = encoder.next({part, kPartBytes});
    const std::byte* data = staging_.send(round.bytes(), stream);
    const uint64_t warps = round.num_pages + (round.num_episodes + kWarpSize - 1) / kWarpSize;
    apply_delta<<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kWarps * kWarpSize, 0,
                  stream>>>(tables, data, round, index_largest, encoder.done());
    GEAR_CUDA_TRY(cudaGetLastError());
    staging_.release(stream);
  }
}

}  // namespace gear::store

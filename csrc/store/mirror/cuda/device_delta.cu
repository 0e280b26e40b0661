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
static_assert(PageLayout::kMaxPageSteps * sizeof(float) +
                      PageLayout::kMaxPageSteps / PageDelta::kMaxRows * sizeof(PageDelta) <=
                  kPartBytes,
              "the largest page fits one part");

// The rows of one record: priority, sign and weights. Every row belongs to one warp of the kernel.
__device__ void apply_rows(const DeviceTables& tables, const PageDelta& delta,
                           const float* values) {
  const float largest = tables.scalars->max_priority[tables.largest];
  const uint64_t base = uint64_t{delta.number} * tables.page_steps;
  const unsigned sent_from = delta.begin > delta.kept ? delta.begin : delta.kept;
  for (unsigned first = delta.begin; first < delta.end; first += kWarpSize) {
    const unsigned row = first + static_cast<unsigned>(lane_id());
    const bool mine = row < delta.end;
    const bool offered = mine && row < delta.page.anchors;
    const uint64_t slot = base + row;
    float priority = 0.0F;
    if (mine && row < delta.page.rows) {
      priority = row < delta.kept
                     ? fabsf(tables.priorities[slot])
                     : resolve_value(values[delta.first_value + row - sent_from], largest);
    }
    if (mine) {
      tables.priorities[slot] = offered ? priority : -priority;
    }
    for (int i = 0; i < tables.num_weights; ++i) {
      const DeviceTables::Weights& weights = tables.weights[i];
      uint64_t gained = 0;
      bool saturated = false;
      if (mine) {
        uint64_t* leaf = weights.tree.levels[0] + slot;
        const uint64_t before = *leaf;
        const uint64_t after =
            offered ? fixed_weight(priority, weights.alpha, tables.weight_limit, saturated) : 0;
        if (after != before) {
          *leaf = after;
        }
        gained = after - before;
        saturated = saturated && (before == 0 || row >= delta.kept);  // offered just now
      }
      if (saturated) {
        atomicAdd(&tables.scalars->saturated_weights, 1ULL);
      }
      warp_add_run(weights.tree, base + first, gained);
    }
  }
}

// Warps [0, num_pages) take a record of a page each, those behind 32 episodes each.
__global__ void apply_delta(const __grid_constant__ DeviceTables tables, const std::byte* data,
                            const DeltaRound round, float index_largest, bool last) {
  const uint64_t warp = blockIdx.x * kWarps + threadIdx.x / kWarpSize;
  if (warp < round.num_pages) {
    const PageDelta& delta = reinterpret_cast<const PageDelta*>(data)[warp];
    if (delta.first) {
      const Page page = delta.page;
      if (lane_id() == 0) {
        tables.pages[delta.number] = page;
      }
      warp_set(tables.anchors, delta.number, uint64_t{delta.drawable});
      warp_set(tables.heads, delta.number, delta.head ? 1 : 0);
    }
    if (tables.priorities != nullptr) {
      apply_rows(tables, delta, reinterpret_cast<const float*>(data + round.values_offset()));
    }
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

void DeltaSender::send(const Index& index, const Drawable& drawable, const ChangeLog& log,
                       const DeviceTables& tables, cudaStream_t stream) {
  DeltaEncoder encoder(index, drawable, log, tables.priorities != nullptr);
  while (!encoder.done()) {
    std::byte* part = staging_.acquire(kPartBytes);
    const DeltaRound round = encoder.next({part, kPartBytes});
    const std::byte* data = staging_.send(round.bytes(), stream);
    const uint64_t warps = round.num_pages + (round.num_episodes + kWarpSize - 1) / kWarpSize;
    apply_delta<<<static_cast<unsigned>((warps + kWarps - 1) / kWarps), kWarps * kWarpSize, 0,
                  stream>>>(tables, data, round, index.state().max_priority, encoder.done());
    GEAR_CUDA_TRY(cudaGetLastError());
    staging_.release(stream);
  }
}

}  // namespace gear::store

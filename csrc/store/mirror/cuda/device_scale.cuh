#pragma once

#include "store/drawable/fixed_point.h"
#include "store/mirror/cuda/device_delta.h"
#include "store/mirror/cuda/device_tree.cuh"
#include "store/mirror/cuda/step_words.cuh"

// How the scales of a mirror's weights follow the largest priority: where a kernel has raised it,
// the block that is the last to finish builds anew the trees whose scale that moves, as
// Index::raise_largest does. One multiprocessor computes them, of an H100 in 2 to 5 ns a step, once
// for each power of two that the largest weight passes: so no kernel of its own stands behind all
// others for it.

namespace gear::store {

/// By the only block that still runs, as what follows.
__device__ inline void weigh_all(const DeviceTables& tables, const DeviceTables::Weights& weights,
                                 const WeightScale& scale) {
  constexpr uint32_t kAtOnce = 4;  // of a thread: one block has to keep its multiprocessor busy
  const DeviceTree& tree = weights.tree;
  const uint64_t* words = tables.steps[weights.steps].words;
  const auto page_steps = static_cast<uint32_t>(tables.page_steps);
  unsigned long long num_saturated = 0;
  for (uint64_t first = threadIdx.x; first < tables.num_slots;
       first += uint64_t{kAtOnce} * blockDim.x) {
    float priorities[kAtOnce];
    uint64_t leaves[kAtOnce];
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint64_t i = first + uint64_t{k} * blockDim.x;
      const auto slot = static_cast<uint32_t>(i < tables.num_slots ? i : 0);
      const uint32_t page = slot / page_steps;
      const uint32_t row = slot % page_steps;
      const uint64_t word = __ldcg(words + uint64_t{page} * tables.words_per_page + row / 64);
      priorities[k] = (word >> row % 64 & 1) != 0 ? __ldcg(tables.priorities + slot) : 0.0F;
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      bool saturated = false;
      leaves[k] = fixed_weight(priorities[k], scale, saturated);
      num_saturated += saturated && first + uint64_t{k} * blockDim.x < tables.num_slots ? 1 : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < kAtOnce; ++k) {
      const uint64_t i = first + uint64_t{k} * blockDim.x;
      if (i < tables.num_slots) {
        tree.levels[0][i] = leaves[k];
      }
    }
  }
  if (num_saturated > 0) {
    atomicAdd(&tables.scalars->saturated_weights, num_saturated);
  }
  const unsigned warp = threadIdx.x / kWarpSize;
  for (int level = 1; level < tree.num_levels; ++level) {
    __threadfence_block();
    __syncthreads();
    for (uint64_t node = warp; node < tree.counts[level]; node += blockDim.x / kWarpSize) {
      const uint64_t* children = tree.levels[level - 1] + node * DeviceTree::kFanout;
      const uint64_t sum = warp_sum(__ldcg(children + static_cast<unsigned>(lane_id())));
      if (lane_id() == 0) {
        tree.levels[level][node] = sum;
      }
      if (weights.least != nullptr) {
        warp_refresh_least(tree, weights.least, level, {static_cast<int64_t>(node)});
      }
    }
  }
}

/// Whether this largest priority is another than that which the scales follow.
__device__ inline bool scales_may_move(const DeviceTables& tables, float largest) {
  return tables.num_weights > 0 && largest != tables.scalars->followed;
}

__device__ inline void follow_largest(const DeviceTables& tables, float largest) {
  for (int i = 0; i < tables.num_weights; ++i) {
    const DeviceTables::Weights& weights = tables.weights[i];
    const WeightScale before = *weights.scale;
    const WeightScale scale = weight_scale(largest, before.alpha, before.bits);
    if (scale.shift == before.shift) {
      continue;
    }
    weigh_all(tables, weights, scale);
    __syncthreads();
    if (threadIdx.x == 0) {
      *weights.scale = scale;
    }
  }
  __syncthreads();  // all have asked scales_may_move()
  if (threadIdx.x == 0) {
    tables.scalars->followed = largest;
  }
}

/// As warp_refresh_least(), of the trees that have minima.
template <int kNodes = 1>
__device__ inline void refresh_least(const DeviceTables& tables, int level,
                                     const int64_t (&nodes)[kNodes]) {
  for (int k = 0; k < tables.num_weights; ++k) {
    const DeviceTables::Weights& weights = tables.weights[k];
    if (weights.least != nullptr) {
      warp_refresh_least(weights.tree, weights.least, level, nodes);
    }
  }
}

}  // namespace gear::store

// Prioritised with replacement, as select::Space: a warp a draw on the tree of weights, then a
// thread an importance weight, since these need the least probability of all: of few draws in the
// block that is the last to make its own, of many in another kernel.
#include <atomic>
#include <cmath>

#include "base/cuda/last_block.cuh"
#include "base/errors.h"
#include "select/cuda/device_draw.cuh"
#include "store/drawable/fixed_point.h"

namespace gear::select {
namespace {

constexpr unsigned kBlock = 256;
constexpr uint64_t kWeighedAtOnce = 1024;  // draws
static_assert(kWeighedAtOnce <= store::kManyTargets);

__device__ float warp_least(float value) {
  for (int step = store::kWarpSize / 2; step > 0; step /= 2) {
    value = fminf(value, __shfl_xor_sync(store::kWholeWarp, value, step));
  }
  return value;
}

// Lowers state->least to the least value of any thread of the block.
__device__ void lower_least(DrawState* state, float value) {
  __shared__ float of_warps[store::kMostSearchThreads / store::kWarpSize];
  value = warp_least(value);
  if (store::lane_id() == 0) {
    of_warps[threadIdx.x / store::kWarpSize] = value;
  }
  __syncthreads();
  if (threadIdx.x >= store::kWarpSize) {
    return;
  }
  if (threadIdx.x < blockDim.x / store::kWarpSize) {
    value = of_warps[threadIdx.x];
  }
  value = warp_least(value);
  if (threadIdx.x == 0) {
    atomicMin(&state->least, __float_as_uint(value));  // positive: ordered as their bits
  }
}

__device__ void weigh(const DrawState* state, uint64_t item, double offset, const DeviceDraw& out) {
  const float probability = __ldcg(out.probabilities + item);  // another block may have written it
  out.weights[item] = static_cast<float>(store::power_portable(probability, -state->beta, offset));
}

// As select::set_importance.
__device__ double offset_of(const DrawState* state) {
  const float least = __uint_as_float(__ldcg(&state->least));
  return state->beta * store::log2_portable(static_cast<double>(least));
}

template <bool kMany>
__global__ void __launch_bounds__(store::kMostSearchThreads)
    draw_weighted(const __grid_constant__ store::DeviceTree tree, uint64_t* least_of_all,
                  store::StepNames names, uint64_t seed, DrawState* state, uint64_t count,
                  DeviceDraw out, uint32_t* nothing) {
  const unsigned long long made = state->made;
  float least = __uint_as_float(kNoLeast);
  store::search<uint64_t, kMany>(
      tree, count,
      [&](uint64_t item, uint64_t total) { return draw_target(seed, made + item, total); },
      [&](uint64_t item, const store::TreeHit& hit) {
        const double scale = 1.0 / static_cast<double>(hit.total);
        const float probability =
            hit.total > 0 ? static_cast<float>(static_cast<double>(hit.weight) * scale) : 0.0F;
        if (hit.total == 0 && item == 0) {
          *static_cast<volatile uint32_t*>(nothing) = 1;
        }
        const auto slot = static_cast<uint32_t>(hit.leaf);
        write_anchor(out, names, item, slot, names.page_steps.divide(slot));
        out.probabilities[item] = probability;
        least = fminf(least, probability);
        if (least_of_all != nullptr && hit.total > 0) {
          const auto weight = static_cast<double>(store::least_weight(tree, least_of_all));
          least = fminf(least, static_cast<float>(weight * scale));
        }
      });
  lower_least(state, least);
  if (kMany || count > kWeighedAtOnce || !base::is_last_block(&state->blocks_done)) {
    return;
  }
  const double offset = offset_of(state);
  for (uint64_t item = threadIdx.x; item < count; item += blockDim.x) {
    weigh(state, item, offset, out);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    state->least = kNoLeast;
    state->made = made + count;
  }
}

__global__ void weigh_importance(DrawState* state, uint64_t count, DeviceDraw out) {
  const unsigned long long made = state->made;
  const double offset = offset_of(state);
  const uint64_t item = uint64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (item < count) {
    weigh(state, item, offset, out);
  }
  if (base::is_last_block(&state->blocks_done) && threadIdx.x == 0) {
    state->least = kNoLeast;
    state->made = made + count;
  }
}

class DeviceWeighted final : public DeviceSampler {
 public:
  explicit DeviceWeighted(const DeviceSamplerParts& parts)
      : DeviceSampler(parts),
        weights_(mirror().weights(mirror().steps(parts.options.lookahead, parts.options.mask),
                                  parts.options.alpha, law().needs_least_of_all())),
        position_(mirror(), law()),
        nothing_(1, mirror().device()),
        forgotten_(base::Event::on(mirror().device())) {
    nothing_[0] = 0;
  }

  void launch(uint64_t items, const DeviceDraw& out) override {
    const base::OnDevice current(mirror().device());
    store::launch_search<uint64_t>(
        draw_weighted<false>, draw_weighted<true>, weights_->tree, items, mirror().stream(),
        weights_->tree, law().needs_least_of_all() ? weights_->least : nullptr,
        store::step_names(mirror().view(), store::Unit::kStep), law().options().seed,
        position_.get(), items, out, nothing_.get());
    if (items <= kWeighedAtOnce) {
      return;
    }
    const auto blocks = static_cast<unsigned>((items + kBlock - 1) / kBlock);
    weigh_importance<<<blocks, kBlock, 0, mirror().stream()>>>(position_.get(), items, out);
    GEAR_CUDA_TRY(cudaGetLastError());
  }

  bool capturable() const override { return true; }

 private:
  void restored() override { position_.restore(law()); }
  // Once for what is launched so far: the launches that are under way may find the same.
  bool found_nothing() override {
    if (!forgotten_.done() || std::atomic_ref<uint32_t>(nothing_[0]).load() == 0) {
      return false;
    }
    const base::OnDevice current(mirror().device());
    GEAR_CUDA_TRY(cudaMemsetAsync(nothing_.get(), 0, nothing_.bytes(), mirror().stream()));
    forgotten_.record(mirror().stream());
    return true;
  }

  std::shared_ptr<const store::DeviceWeights> weights_;
  DevicePosition position_;
  base::PinnedArray<uint32_t> nothing_;  ///< 1: all weights were 0
  base::Event forgotten_;                ///< that is, what was launched before
};

}  // namespace

std::unique_ptr<DeviceSampler> make_device_weighted(const DeviceSamplerParts& parts) {
  return std::make_unique<DeviceWeighted>(parts);
}

}  // namespace gear::select

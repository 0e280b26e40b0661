#include "select/cuda/device_select.h"

#include "base/errors.h"
#include "select/cuda/device_draw.cuh"

namespace gear::select {
namespace {

__global__ void set_state(DrawState* state, uint64_t made, double beta) {
  *state = {made, beta, kNoLeast, 0};
}

}  // namespace

DevicePosition::DevicePosition(const store::DeviceIndex& mirror, double beta)
    : mirror_(mirror), state_(1, mirror.device()) {
  restore(0, beta);
}

void DevicePosition::restore(uint64_t made, double beta) {
  const base::OnDevice current(mirror_.device());
  set_state<<<1, 1, 0, mirror_.stream()>>>(state_.get(), made, beta);
  GEAR_CUDA_TRY(cudaGetLastError());
  made_ = made;
  beta_ = beta;
}

std::unique_ptr<DeviceSampler> make_device_sampler(const SamplerOptions& options,
                                                   store::Index& index, store::DeviceIndex& mirror,
                                                   uint64_t most_items) {
  check_options(options);
  if (index.options().max_times_sampled > 0) {
    return nullptr;
  }
  const bool steps = options.unit == store::Unit::kStep;
  switch (options.policy) {
    case Policy::kUniform:
      return make_device_uniform(options, index, mirror);
    case Policy::kWeighted:
      return steps ? make_device_weighted(options, index, mirror) : nullptr;
    case Policy::kSequential:
      return options.shuffle ? make_device_sequential(options, index, mirror) : nullptr;
    case Policy::kTopK:
      return steps ? make_device_topk(options, index, mirror, most_items) : nullptr;
    case Policy::kFifo:
    case Policy::kLifo:
      return nullptr;
  }
  GEAR_CHECK(!"every policy has a maker");
  return nullptr;
}

}  // namespace gear::select

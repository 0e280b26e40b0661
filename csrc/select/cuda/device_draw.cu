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

}  // namespace gear::select

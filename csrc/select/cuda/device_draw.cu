#include "base/errors.h"
#include "select/cuda/device_draw.cuh"

namespace gear::select {
namespace {

__global__ void set_state(DrawState* state, uint64_t made, double beta) {
  *state = {made, beta, kNoLeast, 0};
}

}  // namespace

DevicePosition::DevicePosition(const store::DeviceIndex& mirror, const Law& law)
    : mirror_(mirror), state_(1, mirror.device()) {
  restore(law);
}

void DevicePosition::restore(const Law& law) {
  const base::OnDevice current(mirror_.device());
  const Position numbers = law.position().numbers;
  set_state<<<1, 1, 0, mirror_.stream()>>>(state_.get(), numbers.empty() ? 0 : numbers[0],
                                           law.beta());
  GEAR_CUDA_TRY(cudaGetLastError());
}

}  // namespace gear::select

#pragma once

#include <cuda_runtime.h>

namespace gear::base {

/// True in all threads of the block that is the last of its kernel to come this far, which sees
/// what the others wrote before they did. By whole blocks of a grid of one dimension. `done`: a
/// word of the GPU, 0 before the kernel and behind this.
__device__ inline bool is_last_block(unsigned* done) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(done, 1U) + 1 == gridDim.x;
    if (last) {
      *done = 0;
      __threadfence();
    }
  }
  __syncthreads();
  return last;
}

}  // namespace gear::base

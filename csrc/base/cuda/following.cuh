#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>

#include "base/cuda/cuda.h"

// Kernels in a row on one stream, each of which is set up while the one before it still works: a
// microsecond less between two of them. Each begins with follow(); the one before lets it in by
// let_next_in(), or by its end. From compute capability 9.0 on; elsewhere all of it means nothing.

namespace gear::base {

/// By all threads, before anything that the kernels before may have written, or may still read.
__device__ inline void follow() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// The next kernel's blocks may take places, where they wait for the end of this one. Not before a
/// wait for another rank's kernel, which may need those places where ranks share a GPU.
__device__ inline void let_next_in() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Whether `kernel` was compiled so that follow() waits, on the current device.
template <auto kernel>
bool follows() {
  constexpr int kDevices = 64;
  constexpr int kFirstVersion = 90;
  static std::array<std::atomic<int>, kDevices> versions{};  // 0: not asked yet
  int device = 0;
  GEAR_CUDA_TRY(cudaGetDevice(&device));
  if (device >= kDevices) {
    return false;
  }
  int version = versions[device].load(std::memory_order_relaxed);
  if (version == 0) {
    cudaFuncAttributes attributes{};
    GEAR_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
    version = attributes.ptxVersion;
    versions[device].store(version, std::memory_order_relaxed);
  }
  return version >= kFirstVersion;
}

/// Launches `kernel`, which begins with follow().
template <auto kernel, class... Arguments>
void launch_following(dim3 grid, unsigned threads, cudaStream_t stream,
                      const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t launch{};
  launch.gridDim = grid;
  launch.blockDim = dim3(threads);
  launch.stream = stream;
  launch.attrs = &early;
  launch.numAttrs = follows<kernel>() ? 1 : 0;
  GEAR_CUDA_TRY(cudaLaunchKernelEx(&launch, kernel, arguments...));
}

}  // namespace gear::base

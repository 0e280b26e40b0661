#pragma once

#include <span>
#include <vector>

#include "base/cuda/cuda.h"

namespace gear::tests {

// Copies of device memory and back, each of which waits.
template <class T>
std::vector<T> from_device(const T* data, uint64_t count, cudaStream_t stream) {
  std::vector<T> out(count);
  GEAR_CUDA_TRY(
      cudaMemcpyAsync(out.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
  GEAR_CUDA_TRY(cudaStreamSynchronize(stream));
  return out;
}

template <class T>
base::DeviceArray<T> to_device(std::span<const T> values) {
  base::DeviceArray<T> out(values.size(), 0);
  GEAR_CUDA_TRY(
      cudaMemcpy(out.get(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  // The copy of pageable memory returns before its last part has arrived.
  GEAR_CUDA_TRY(cudaDeviceSynchronize());
  return out;
}

}  // namespace gear::tests

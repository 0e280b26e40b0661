#pragma once

namespace gear::link {

/// Speed of the copy engines and of a GPU's own memory, in GB/s (1e9 bytes): the limits that no
/// gather exceeds.
struct Bandwidth {
  double host_to_device;  ///< cudaMemcpyAsync from page-locked memory, over PCIe
  double device_to_host;
  double device;  ///< read and written, each byte counted twice, by a copy inside the GPU
};

/// Measures them: the median of several copies of 256 MiB, some tenths of a second in all. Takes
/// two such buffers on the GPU and one in page-locked memory. Throws CudaError, OutOfMemory;
/// InvalidArgument in a build without CUDA.
Bandwidth measure_bandwidth(int device);

}  // namespace gear::link

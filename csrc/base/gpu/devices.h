#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gear::base {

/// What `gear check` says of one GPU.
struct DeviceInfo {
  int index;  ///< as in tier="device:<index>", within what CUDA_VISIBLE_DEVICES shows
  std::string name;
  int major;  ///< compute capability
  int minor;
  uint64_t memory_bytes;
  uint64_t free_bytes;     ///< at the time of the call, whoever holds the rest
  std::string pci_bus_id;  ///< "0000:3b:00.0"
  int pcie_generation;     ///< the most that the GPU and its slot reach; 0: not known
  int pcie_width;          ///< lanes, likewise
  std::string uuid;        ///< "GPU-" and 32 hex digits in the usual groups
  int multiprocessors;
};

/// GPUs that this process may use; 0 without a driver, without a GPU and in a build without CUDA.
int device_count() noexcept;

/// All of them. Makes a context on each, which takes some hundred milliseconds and memory there the
/// first time. Throws CudaError if one of them cannot be used.
std::vector<DeviceInfo> devices();

/// 1000 * major + 10 * minor of the CUDA version that the driver supports; 0 without a driver.
int driver_version() noexcept;

/// The same of the CUDA runtime inside this build; 0 in a build without CUDA.
int runtime_version() noexcept;

/// "GPU 0 (NVIDIA H200), GPU 1 (NVIDIA H200)", for messages; "none" where there is none.
std::string device_names();

/// The GPU's UUID, 16 bytes: the same in every process, whatever CUDA_VISIBLE_DEVICES says there.
/// Throws CudaError.
std::array<std::byte, 16> device_uuid(int index);

/// Copies memory of a GPU to the host once `stream`, a cudaStream_t, has run what was put on it,
/// and waits for it. Throws CudaError; InvalidArgument in a build without CUDA.
void fetch(std::span<std::byte> to, const void* from, uintptr_t stream);

/// The same into new memory.
template <class T>
std::vector<T> fetched(const T* from, uint64_t count, uintptr_t stream) {
  std::vector<T> to(count);
  fetch(std::as_writable_bytes(std::span(to)), from, stream);
  return to;
}

/// What a build without CUDA, and no other, answers for what needs it: throws InvalidArgument.
/// `what`: the area and what was asked for, "[memory] tier 'pinned'".
[[noreturn]] void refuse_without_cuda(std::string_view what);

}  // namespace gear::base

#include "base/gpu/devices.h"

#include <cstring>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/gpu/pcie_link.h"

namespace gear::base {
namespace {

// As nvidia-smi writes it.
std::string uuid_text(const std::array<std::byte, 16>& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    const auto byte = std::to_integer<unsigned>(uuid[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

DeviceInfo describe(int index) {
  const OnDevice on(index);
  cudaDeviceProp properties{};
  GEAR_CUDA_TRY(cudaGetDeviceProperties(&properties, index));
  std::array<char, 32> bus_id{};
  GEAR_CUDA_TRY(cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), index));
  size_t free = 0;
  size_t total = 0;
  GEAR_CUDA_TRY(cudaMemGetInfo(&free, &total));
  DeviceInfo info{};
  info.index = index;
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  info.memory_bytes = total;
  info.free_bytes = free;
  info.pci_bus_id = bus_id.data();
  const PcieLink link = pcie_link(info.pci_bus_id);
  info.pcie_generation = link.generation;
  info.pcie_width = link.width;
  info.uuid = uuid_text(device_uuid(index));
  info.multiprocessors = properties.multiProcessorCount;
  return info;
}

}  // namespace

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // no driver, or no GPU
    return 0;
  }
  return count;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found;
  for (int i = 0; i < device_count(); ++i) {
    found.push_back(describe(i));
  }
  return found;
}

std::array<std::byte, 16> device_uuid(int index) {
  cudaDeviceProp properties{};
  GEAR_CUDA_TRY(cudaGetDeviceProperties(&properties, index));
  std::array<std::byte, 16> uuid;
  static_assert(sizeof(properties.uuid.bytes) == sizeof(uuid));
  std::memcpy(uuid.data(), properties.uuid.bytes, sizeof(uuid));
  return uuid;
}

void fetch(std::span<std::byte> to, const void* from, uintptr_t stream) {
  const BesideCaptures beside;
  cudaPointerAttributes attributes{};
  GEAR_CUDA_TRY(cudaPointerGetAttributes(&attributes, from));
  const OnDevice current(attributes.device);
  const auto made_on = reinterpret_cast<cudaStream_t>(stream);
  GEAR_CUDA_TRY(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDefault, made_on));
  GEAR_CUDA_TRY(cudaStreamSynchronize(made_on));
}

int driver_version() noexcept {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

int runtime_version() noexcept {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? version : 0;
}

std::string device_names() {
  std::string names;
  for (int i = 0; i < device_count(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      continue;
    }
    names += cat(names.empty() ? "" : ", ", "GPU ", i, " (", properties.name, ")");
  }
  return names.empty() ? "none" : names;
}

}  // namespace gear::base

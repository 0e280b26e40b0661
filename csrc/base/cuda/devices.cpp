#include "base/devices.h"

#include <array>

#include "base/cuda/cuda.h"
#include "base/errors.h"
#include "base/pcie_link.h"

namespace gear::base {
namespace {

// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
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
  info.uuid = uuid_text(properties.uuid);
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

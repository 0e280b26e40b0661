#include "base/gpu/pcie_link.h"

#include <dlfcn.h>

namespace gear::base {
namespace {

// Of nvml.h, whose ABI is stable.
using Device = void*;
constexpr int kSuccess = 0;

template <class Function>
bool find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, symbol));
  return function != nullptr;
}

}  // namespace

PcieLink pcie_link(const std::string& pci_bus_id) noexcept {
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {};
  }
  int (*start)() = nullptr;
  int (*stop)() = nullptr;
  int (*device_by_bus_id)(const char*, Device*) = nullptr;
  int (*max_generation)(Device, unsigned*) = nullptr;
  int (*max_width)(Device, unsigned*) = nullptr;
  PcieLink link;
  if (find(library, "nvmlInit_v2", start) && find(library, "nvmlShutdown", stop) &&
      find(library, "nvmlDeviceGetHandleByPciBusId_v2", device_by_bus_id) &&
      find(library, "nvmlDeviceGetMaxPcieLinkGeneration", max_generation) &&
      find(library, "nvmlDeviceGetMaxPcieLinkWidth", max_width) && start() == kSuccess) {
    Device device = nullptr;
    unsigned value = 0;
    if (device_by_bus_id(pci_bus_id.c_str(), &device) == kSuccess) {
      if (max_generation(device, &value) == kSuccess) {
        link.generation = static_cast<int>(value);
      }
      if (max_width(device, &value) == kSuccess) {
        link.width = static_cast<int>(value);
      }
    }
    stop();
  }
  ::dlclose(library);
  return link;
}

}  // namespace gear::base

#include <pybind11/stl.h>

#include <optional>

#include "base/gpu/devices.h"
#include "bindings/bindings.h"
#include "link/bandwidth.h"
#include "link/link_cache.h"

namespace gear::bindings {
namespace {

py::list devices() {
  std::vector<base::DeviceInfo> found;
  {
    const py::gil_scoped_release release;
    found = base::devices();
  }
  py::list list;
  for (const base::DeviceInfo& device : found) {
    py::dict row;
    row["index"] = device.index;
    row["name"] = device.name;
    row["compute_capability"] = py::make_tuple(device.major, device.minor);
    row["multiprocessors"] = device.multiprocessors;
    row["memory_bytes"] = device.memory_bytes;
    row["free_bytes"] = device.free_bytes;
    row["pci_bus_id"] = device.pci_bus_id;
    row["pcie_generation"] = device.pcie_generation;
    row["pcie_width"] = device.pcie_width;
    row["uuid"] = device.uuid;
    list.append(row);
  }
  return list;
}

py::dict measure_bandwidth(int device) {
  link::Bandwidth speed{};
  {
    const py::gil_scoped_release release;
    speed = link::measure_bandwidth(device);
  }
  py::dict row;
  row["host_to_device"] = speed.host_to_device;
  row["device_to_host"] = speed.device_to_host;
  row["device"] = speed.device;
  return row;
}

py::dict as_dict(const link::LinkModel& model) {
  py::dict row;
  row["bytes_per_s"] = model.bytes_per_s;
  row["places_per_s"] = model.places_per_s;
  row["staged_bytes_per_s"] = model.staged_bytes_per_s;
  return row;
}

py::object link_speeds(int device, bool measure) {
  std::optional<link::LinkModel> model;
  {
    const py::gil_scoped_release release;
    if (measure) {
      model = link::measure_link_again(device);
    } else {
      model = link::cached_link_to(device);
    }
  }
  return model ? py::object(as_dict(*model)) : py::object(py::none());
}

}  // namespace

void register_devices(py::module_& module) {
  module.def("devices", &devices, "The GPUs that this process may use, one dict each.");
  module.def("driver_version", &base::driver_version,
             "CUDA version of the driver, 1000 * major + 10 * minor; 0: none.");
  module.def("runtime_version", &base::runtime_version,
             "CUDA version of the runtime inside; 0: built without CUDA.");
  module.def("measure_bandwidth", &measure_bandwidth, py::arg("device"),
             "GB/s of copies to, from and inside a GPU.");
  module.def(
      "link_speeds", &link_speeds, py::arg("device"), py::kw_only(), py::arg("measure"),
      "Speeds of gathers from pinned memory, measured now or kept from before; None: never.");
}

}  // namespace gear::bindings

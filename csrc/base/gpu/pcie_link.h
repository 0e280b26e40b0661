#pragma once

#include <string>

namespace gear::base {

/// The PCIe link of a GPU at its best: what both the GPU and its slot can do. Not what it does at
/// the moment, since an idle link is slowed down to save power.
struct PcieLink {
  int generation = 0;  ///< 0: not known
  int width = 0;       ///< lanes; 0: not known
};

/// Asked of the driver's management library (libnvidia-ml.so.1), which is found at run time.
/// `pci_bus_id` is CUDA's, "0000:3b:00.0". Never throws: what cannot be found out is 0.
PcieLink pcie_link(const std::string& pci_bus_id) noexcept;

}  // namespace gear::base

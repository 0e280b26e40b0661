#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>

#include "torch/gpu/copier.h"

namespace gear::process_group {

/// Which tensors go by way of the host, since messages cannot read them where they are, and who
/// copies them. Any thread may call.
class Devices {
 public:
  Devices() = default;
  virtual ~Devices() = default;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  virtual bool stages(at::Device device) const = 0;
  /// For one operation on tensors of that device.
  virtual std::unique_ptr<Copier> copier(at::Device device) const = 0;
  /// Bytes from which ranks of one node reduce a tensor by memory that they share.
  virtual uint64_t least_for_node() const = 0;
};

// These live for ever.
/// Nothing but tensors of the host, where they are.
const Devices& host_alone();
/// Those of GPUs, too.
const Devices& gpus();

}  // namespace gear::process_group

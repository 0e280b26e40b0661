#include "select/cuda/device_select.h"

#include "base/errors.h"

namespace gear::select {

std::unique_ptr<DeviceSampler> make_device_sampler(const SamplerOptions& options,
                                                   store::Index& index, store::DeviceIndex& mirror,
                                                   uint64_t most_items) {
  check_options(options);
  if (index.options().max_times_sampled > 0) {
    return nullptr;
  }
  const bool steps = options.unit == store::Unit::kStep;
  switch (options.policy) {
    case Policy::kUniform:
      return make_device_uniform(options, index, mirror);
    case Policy::kWeighted:
      return steps ? make_device_weighted(options, index, mirror) : nullptr;
    case Policy::kSequential:
      return options.shuffle ? make_device_sequential(options, index, mirror) : nullptr;
    case Policy::kTopK:
      return steps ? make_device_topk(options, index, mirror, most_items) : nullptr;
    case Policy::kFifo:
    case Policy::kLifo:
      return nullptr;
  }
  GEAR_CHECK(!"every policy has a maker");
  return nullptr;
}

}  // namespace gear::select

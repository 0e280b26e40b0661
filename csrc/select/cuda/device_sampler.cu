#include "select/cuda/device_sampler.h"

#include <algorithm>

#include "select/cuda/device_draw.cuh"

namespace gear::select {

std::unique_ptr<DeviceSampler> DeviceSampler::make(const DeviceSamplerParts& parts) {
  const Policy policy = parts.options.policy;
  if (policy == Policy::kTopK) {
    return make_device_topk(parts);
  }
  return policy == Policy::kWeighted ? make_device_weighted(parts) : make_device_equal(parts);
}

DeviceSampler::DeviceSampler(const DeviceSamplerParts& parts)
    : law_(parts.options),
      index_(parts.index),
      mirror_(parts.mirror),
      most_items_(parts.most_items),
      steps_(drawable_steps(parts.options, parts.index)) {}

uint64_t DeviceSampler::advance(uint64_t count) {
  if (seen_ != law_.changes()) {
    seen_ = law_.changes();
    restored();
  }
  const uint64_t total = steps_ ? steps_->counts().total() : index_.drawables().heads().total();
  const bool none_above_0 = index_.state().max_priority == 0 && !mirror_.ahead();
  if (found_nothing() || (law_.is_weighted() && total > 0 && none_above_0)) {
    throw_weightless();
  }
  const uint64_t version = steps_ ? steps_->version() : index_.drawables().heads_version();
  const uint64_t items = law_.chance() != nullptr ? law_.chance()->next(total, version, count)
                                                  : std::min({count, total, most_items_});
  index_.count_sampled(items);
  return items;
}

bool draws_on_device(const SamplerOptions& options, const store::Index& index) {
  if (index.options().max_times_sampled > 0) {
    return false;
  }
  const bool steps = options.unit == store::Unit::kStep;
  switch (options.policy) {
    case Policy::kUniform:
      return true;
    case Policy::kWeighted:
    case Policy::kTopK:
      return steps;
    case Policy::kSequential:
      return options.shuffle;
    case Policy::kFifo:
    case Policy::kLifo:
      return false;
  }
  return false;
}

}  // namespace gear::select

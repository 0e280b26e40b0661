#include "select/cuda/device_sampler.h"

#include <algorithm>

namespace gear::select {
namespace {

std::unique_ptr<DeviceSelection> selection_of(const Law& law, store::DeviceIndex& mirror,
                                              uint64_t most_items) {
  if (law.chance() == nullptr) {
    return make_device_topk(law, mirror, most_items);
  }
  return law.is_weighted() ? make_device_weighted(law, mirror) : make_device_equal(law, mirror);
}

}  // namespace

DeviceSampler::DeviceSampler(const SamplerOptions& options, store::Index& index,
                             store::DeviceIndex& mirror, uint64_t most_items)
    : law_(options),
      index_(index),
      mirror_(mirror),
      most_items_(most_items),
      steps_(drawable_steps(options, index)),
      selection_(selection_of(law_, mirror, most_items)) {}

uint64_t DeviceSampler::advance(uint64_t count) {
  if (seen_ != law_.changes()) {
    seen_ = law_.changes();
    selection_->restore(law_);
  }
  const uint64_t total = steps_ ? steps_->counts().total() : index_.drawables().heads().total();
  const bool none_above_0 = index_.state().max_priority == 0 && !mirror_.ahead();
  if (selection_->found_nothing() || (law_.is_weighted() && total > 0 && none_above_0)) {
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

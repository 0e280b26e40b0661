// The newest steps (or episodes) first: with max_times_sampled = 1 the buffer is a stack.
#include "select/ordered.h"

namespace gear::select {

std::unique_ptr<Sampler> make_lifo(const SamplerOptions& options) {
  return std::make_unique<Ordered>(options.unit, Walk::From::kNewest);
}

}  // namespace gear::select

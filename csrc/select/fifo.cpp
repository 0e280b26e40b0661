// The oldest steps (or episodes) first: with max_times_sampled = 1 the buffer is a queue.
#include "select/ordered.h"

namespace gear::select {

std::unique_ptr<Sampler> make_fifo(const SamplerOptions& options) {
  return std::make_unique<Ordered>(options.unit, Walk::From::kOldest);
}

}  // namespace gear::select

#include "select/sampler.h"

#include <cmath>

#include "base/errors.h"
#include "select/items.h"

namespace gear::select {

void Law::set_beta(double) { refuse_beta(); }

void refuse_beta() {
  throw base::InvalidArgument(
      "[select] only the Weighted sampler has a beta: this loader draws by another");
}

void check_options(const SamplerOptions& options) {
  if (!std::isfinite(options.alpha) || options.alpha < 0 || !std::isfinite(options.beta) ||
      options.beta < 0) {
    throw base::InvalidArgument(base::cat("[select] alpha ", options.alpha, ", beta ", options.beta,
                                          ": finite numbers, 0 or more, are allowed"));
  }
  if (options.mask && options.unit == store::Unit::kEpisode) {
    throw base::InvalidArgument(
        "[select] a mask of steps for a law that draws whole episodes: draw steps, or without it");
  }
}

void check_beta(double beta) {
  if (!std::isfinite(beta) || beta < 0) {
    throw base::InvalidArgument(
        base::cat("[select] beta ", beta, ": a finite number, 0 or more, is allowed"));
  }
}

std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options, store::Index& index) {
  check_options(options);
  switch (options.policy) {
    case Policy::kUniform:
      return make_uniform(options, index);
    case Policy::kWeighted:
      return make_weighted(options, index);
    case Policy::kSequential:
      if (index.options().max_times_sampled > 0) {
        throw base::InvalidArgument(
            "[select] Sequential over a buffer with max_times_sampled: an epoch would change what "
            "it walks over; use Fifo, or a buffer without max_times_sampled");
      }
      return make_sequential(options, index);
    case Policy::kFifo:
    case Policy::kLifo:
      return make_ordered(options, index);
    case Policy::kTopK:
      return make_topk(options, index);
  }
  GEAR_CHECK(!"every policy has a maker");
  return nullptr;
}

uint64_t batches_per_epoch(const SamplerOptions& options, uint64_t offered, uint64_t batch_size) {
  if (options.policy != Policy::kSequential) {
    return 0;
  }
  return (offered + (options.drop_last ? 0 : batch_size - 1)) / batch_size;
}

uint64_t batches_per_epoch(const SamplerOptions& options, store::Index& index,
                           uint64_t batch_size) {
  return batches_per_epoch(options, counted(options, index).counts.total(), batch_size);
}

}  // namespace gear::select

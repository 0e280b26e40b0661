#include "select/group/group_sampler.h"

#include "base/errors.h"
#include "store/id.h"

namespace gear::select {
namespace {

// A draw on one rank would change what the next one, perhaps on another rank, may choose.
void refuse_withdrawal(const store::Index& index, const char* policy) {
  if (index.options().max_times_sampled == 0) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[select] ", policy, " over many ranks from a buffer with max_times_sampled ",
      index.options().max_times_sampled,
      ": each draw would change what the others may choose; use Fifo, Lifo or TopK, or a buffer "
      "without max_times_sampled"));
}

}  // namespace

std::unique_ptr<GroupSampler> make_group_sampler(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size) {
  if (size > store::StepId::kMostOwners) {
    throw base::InvalidArgument(base::cat("[select] draws over ", size, " ranks: ",
                                          store::StepId::kMostOwners, " at most are allowed"));
  }
  GEAR_CHECK(rank < size);
  check_options(options);
  switch (options.policy) {
    case Policy::kUniform:
    case Policy::kWeighted:
      refuse_withdrawal(index, options.policy == Policy::kUniform ? "Uniform" : "Weighted");
      return make_group_by_chance(options, index, rank, size);
    case Policy::kSequential:
      refuse_withdrawal(index, "Sequential");
      return make_group_sequential(options, index, rank, size);
    case Policy::kFifo:
    case Policy::kLifo:
    case Policy::kTopK:
      return make_group_ordered(options, index, rank, size);
  }
  GEAR_CHECK(!"every policy has a maker");
  return nullptr;
}

}  // namespace gear::select

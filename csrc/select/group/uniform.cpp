// Uniform with replacement over all ranks: P(i) = 1 / N, N the items of all of them.
#include "select/group/by_chance.h"

namespace gear::select {

std::unique_ptr<GroupSampler> make_group_uniform(const SamplerOptions& options, store::Index& index,
                                                 uint32_t rank, uint32_t size) {
  return std::make_unique<GroupByChance<EqualItems>>(options, index, rank, size);
}

}  // namespace gear::select

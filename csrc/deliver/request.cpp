#include "deliver/request.h"

#include <utility>

#include "base/errors.h"

namespace gear::deliver {
namespace {

void check_prefetch(uint64_t prefetch) {
  if (prefetch > kMostPrefetch) {
    throw base::InvalidArgument(base::cat(
        "[loader] prefetch ", prefetch, ": 0 to ", kMostPrefetch,
        " are allowed; every batch in flight takes memory of its own, and a few hide the gather"));
  }
}

void check_path(const LoaderOptions& options, memory::Tier tier) {
  const bool fits = options.path == plan::Path::kZeroCopy ? tier == memory::Tier::kPinned
                                                          : tier != memory::Tier::kDevice;
  if (options.path == plan::Path::kAuto || (options.device >= 0 && fits)) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[loader] path '", plan::kPaths.name(options.path), "' from tier '",
      memory::kTiers.name(tier), "' to a ", options.device < 0 ? "CPU" : "GPU",
      ": 'zero_copy' leads from tier 'pinned' to a GPU, 'staged' from any tier of host memory "
      "to a GPU; use path='auto'"));
}

}  // namespace

Request::Request(const store::Shard& shard, LoaderOptions asked) : options(std::move(asked)) {
  plan::check_outputs(options.outputs, shard.schema(), options.batch_size,
                      shard.index().num_slots());
  check_prefetch(options.prefetch);
  check_path(options, shard.options().tier);
  select::check_options(options.sampler);
  options.sampler.lookahead = plan::lookahead(options.outputs);
  layout = std::make_shared<const plan::BatchLayout>(shard.schema(), options.outputs,
                                                     options.batch_size, options.packed);
}

}  // namespace gear::deliver

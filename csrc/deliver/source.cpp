#include "deliver/source.h"

#include "base/errors.h"

namespace gear::deliver {
namespace {

[[noreturn]] void refuse_to_draw(const store::Index& index, const select::SamplerOptions& sampler) {
  throw base::InvalidArgument(
      base::cat("[select] nothing to sample: ", index.state().num_steps, " steps in ",
                index.state().num_episodes, " episodes are stored, and none of them may be drawn; ",
                sampler.unit == store::Unit::kStep
                    ? base::cat("a step of an open episode is offered once ", sampler.lookahead,
                                " steps follow it: append more or end the episode")
                    : std::string("an episode is offered once it has ended: end one")));
}

}  // namespace

void check_options(const LoaderOptions& options, memory::Tier tier) {
  if (options.prefetch > kMostPrefetch) {
    throw base::InvalidArgument(base::cat(
        "[collect] prefetch ", options.prefetch, ": 0 to ", kMostPrefetch,
        " are allowed; every batch in flight takes memory of its own, and a few hide the gather"));
  }
  const bool fits = options.path == plan::Path::kZeroCopy ? tier == memory::Tier::kPinned
                                                          : tier != memory::Tier::kDevice;
  if (options.path == plan::Path::kAuto || (options.device >= 0 && fits)) {
    return;
  }
  throw base::InvalidArgument(base::cat(
      "[collect] path '", path_name(options.path), "' from tier '", memory::tier_name(tier),
      "' to a ", options.device < 0 ? "CPU" : "GPU",
      ": 'zero_copy' leads from tier 'pinned' to a GPU, 'staged' from any tier of host memory "
      "to a GPU; use path='auto'"));
}

bool wait_to_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock,
                  const LoaderOptions& options, bool ahead, std::optional<double> timeout_s,
                  Priorities priorities) {
  const bool looks =
      priorities == Priorities::kOfIndex && select::needs_priorities(options.sampler);
  if (looks) {
    static_cast<void>(shard.settle(lock));  // false: the draw that is out is waited for
  }
  const store::SumTree& offered = select::offered(options.sampler, shard.index()).counts;
  if (!shard.rate_limiter().active() && offered.total() == 0) {
    if (ahead) {
      return false;
    }
    refuse_to_draw(shard.index(), options.sampler);
  }
  while (shard.wait_sample(lock, options.batch_size, &offered, timeout_s)) {
    if (!looks || shard.settled()) {
      return true;
    }
    static_cast<void>(shard.settle(lock));  // gives the lock up: others may have drawn
  }
  return false;
}

uint64_t commit_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock, uint64_t items) {
  shard.rate_limiter().sampled(items);
  const uint64_t ticket = shard.begin_read();  // before pages go that this batch reads
  shard.index().release_spent();
  lock.unlock();
  shard.notify_progress();
  return ticket;
}

}  // namespace gear::deliver

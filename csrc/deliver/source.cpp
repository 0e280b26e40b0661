#include "deliver/source.h"

#include "base/errors.h"
#include "base/log.h"

namespace gear::deliver {
namespace {

[[noreturn]] void refuse_to_draw(const store::Index& index, const select::SamplerOptions& sampler) {
  throw base::InvalidArgument(
      base::cat("[sampler] nothing to sample: ", index.state().num_steps, " steps in ",
                index.state().num_episodes, " episodes are stored, and none of them may be drawn; ",
                sampler.unit == store::Unit::kStep
                    ? base::cat("a step of an open episode is offered once ", sampler.lookahead,
                                " steps follow it: append more or end the episode")
                    : std::string("an episode is offered once it has ended: end one")));
}

}  // namespace

bool wait_to_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock,
                  const LoaderOptions& options, bool ahead, std::optional<double> timeout_s,
                  Priorities priorities) {
  const bool looks =
      priorities == Priorities::kOfIndex && select::needs_priorities(options.sampler);
  if (looks) {
    static_cast<void>(shard.settle(lock));  // false: the draw that is out is waited for
  }
  const store::SumTree& offered = select::counted(options.sampler, shard.index());
  if (!shard.rate_limiter().active() && offered.total() == 0) {
    if (ahead) {
      return false;
    }
    refuse_to_draw(shard.index(), options.sampler);
  }
  while (shard.wait_sample(lock, options.batch_size, &offered, timeout_s)) {
    if (!looks || shard.mirrors().settled()) {
      return true;
    }
    static_cast<void>(shard.settle(lock));  // gives the lock up: others may have drawn
  }
  return false;
}

uint64_t commit_draw(store::Shard& shard, std::unique_lock<std::mutex>& lock, uint64_t items,
                     TakenBatch& taken) {
  shard.rate_limiter().taken(items);
  store::TakenDraws draws = shard.index().take_draws();
  draws.items = items;
  taken = {shard, std::move(draws)};
  const uint64_t ticket = shard.begin_read();
  lock.unlock();
  shard.notify_progress();
  return ticket;
}

void undo_draw(store::Shard& shard) { shard.index().give_back(shard.index().take_draws()); }

TakenBatch taken_again(store::Shard& shard, const Job& job, std::span<const uint64_t> uses,
                       uint64_t draws, store::Unit unit) {
  return {shard, shard.take_again(uses, draws, job.batch.items, unit)};
}

void TakenBatch::deliver() {
  if (store::Shard* const shard = std::exchange(shard_, nullptr)) {
    shard->deliver(std::exchange(draws_, {}));
  }
}

void TakenBatch::give_back() noexcept {
  store::Shard* const shard = std::exchange(shard_, nullptr);
  if (shard == nullptr) {
    return;
  }
  const uint64_t items = draws_.items;
  try {
    shard->give_back(std::exchange(draws_, {}));
  } catch (const std::exception& error) {
    base::log(base::Level::kWarning,
              base::cat("[loader] ", items, " items that were drawn and not delivered could not ",
                        "be given back, and count as sampled: ", error.what()));
  }
}

}  // namespace gear::deliver

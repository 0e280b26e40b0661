#include "deliver/draw.h"

#include <string>

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

Draw::~Draw() {
  if (committed_) {
    return;
  }
  if (!lock_.owns_lock()) {
    lock_ = shard_.lock();
  }
  shard_.undraw();
}

bool Draw::wait(const LoaderOptions& options, const store::SumTree& offered, bool looks, bool ahead,
                std::optional<double> timeout_s) {
  if (looks) {
    static_cast<void>(shard_.settle(lock_));  // false: the draw that is out is waited for
  }
  if (!shard_.rate_limiter().active() && offered.total() == 0) {
    if (ahead) {
      return false;
    }
    refuse_to_draw(shard_.index(), options.sampler);
  }
  while (shard_.wait_sample(lock_, options.batch_size, &offered, timeout_s)) {
    if (!looks || shard_.mirrors().settled()) {
      return true;
    }
    static_cast<void>(shard_.settle(lock_));  // gives the lock up: others may have drawn
  }
  return false;
}

void Draw::commit(uint64_t items, TakenBatch& taken, store::Read* read) {
  taken = {shard_, shard_.commit(lock_, items, read)};
  committed_ = true;
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

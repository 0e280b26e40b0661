#include "select/law.h"

#include <cmath>
#include <utility>

#include "base/errors.h"

namespace gear::select {
namespace {

void check_beta(double beta) {
  if (!std::isfinite(beta) || beta < 0) {
    throw base::InvalidArgument(
        base::cat("[sampler] beta ", beta, ": a finite number, 0 or more, is allowed"));
  }
}

std::unique_ptr<Chance> chance_of(const SamplerOptions& options) {
  switch (options.policy) {
    case Policy::kUniform:
    case Policy::kWeighted:
      return std::make_unique<Independent>(options.seed);
    case Policy::kSequential:
      return std::make_unique<Epoch>(options.seed, options.shuffle, options.drop_last);
    case Policy::kFifo:
    case Policy::kLifo:
    case Policy::kTopK:
      return nullptr;
  }
  GEAR_CHECK(!"every policy has its chance");
  return nullptr;
}

}  // namespace

void check_options(const SamplerOptions& options) {
  if (!std::isfinite(options.alpha) || options.alpha < 0 || !std::isfinite(options.beta) ||
      options.beta < 0) {
    throw base::InvalidArgument(base::cat("[sampler] alpha ", options.alpha, ", beta ",
                                          options.beta,
                                          ": finite numbers, 0 or more, are allowed"));
  }
  if (options.mask && options.unit == store::Unit::kEpisode) {
    throw base::InvalidArgument(
        "[sampler] a mask of steps for a law that draws whole episodes: draw steps, or without it");
  }
}

void throw_weightless() {
  throw base::InvalidArgument(
      "[sampler] every priority is 0, of what may be drawn now, and 0 is never drawn: give some "
      "step "
      "a priority above 0");
}

Law::Law(const SamplerOptions& options) : options_(options) {
  check_options(options);
  chance_ = chance_of(options);
}

Epoch* Law::epoch() const { return chance_ ? chance_->as_epoch() : nullptr; }

SamplerPosition Law::position() const {
  return {chance_ ? chance_->position() : Position(), beta()};
}

void Law::restore(const SamplerPosition& position) {
  if (is_weighted()) {
    check_beta(position.beta);
  }
  if (chance_) {
    chance_->restore(position.numbers);
  }
  if (is_weighted()) {
    options_.beta = position.beta;
  }
  ++changes_;
}

void Law::set_beta(double beta) {
  if (!is_weighted()) {
    throw base::InvalidArgument(
        "[sampler] only the Weighted sampler has a beta: this loader draws by another");
  }
  check_beta(beta);
  options_.beta = beta;
  ++changes_;
}

const store::SumTree& counted(const SamplerOptions& options, store::Index& index) {
  const std::shared_ptr<store::Drawable> steps = drawable_steps(options, index);
  return steps ? steps->counts() : index.drawables().heads();
}

uint64_t batches_per_epoch(const SamplerOptions& options, uint64_t offered, uint64_t batch_size) {
  if (options.policy != Policy::kSequential) {
    return 0;
  }
  return (offered + (options.drop_last ? 0 : batch_size - 1)) / batch_size;
}

uint64_t batches_per_epoch(const SamplerOptions& options, store::Index& index,
                           uint64_t batch_size) {
  return batches_per_epoch(options, counted(options, index).total(), batch_size);
}

}  // namespace gear::select

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "select/selection.h"

namespace gear::select {

enum class Policy : uint8_t { kUniform, kWeighted, kSequential, kFifo, kLifo, kTopK };

struct SamplerOptions {
  Policy policy = Policy::kUniform;
  store::Unit unit = store::Unit::kStep;
  uint64_t seed = 0;
  double alpha = 0.6;      // kWeighted: P(i) proportional to priority^alpha
  double beta = 0.4;       // kWeighted: importance weights (N P(i))^-beta / max
  bool shuffle = true;     // kSequential
  bool drop_last = false;  // kSequential: leave out an epoch's last batch when it is short
  /// Steps past the anchor that the loader's outputs reach: those of an open episode are drawn only
  /// when so many follow.
  uint64_t lookahead = 0;
  /// Keeps steps out; null: none. For Unit::kStep alone.
  std::shared_ptr<const store::Mask> mask;
};

/// Whether the policy looks at priorities, so that those of a mirror must be settled before it
/// does.
inline bool needs_priorities(const SamplerOptions& options) {
  return options.policy == Policy::kWeighted || options.policy == Policy::kTopK;
}

/// The steps that it may draw; null where it draws whole episodes.
inline std::shared_ptr<store::Drawable> drawable_steps(const SamplerOptions& options,
                                                       store::Index& index) {
  return options.unit == store::Unit::kStep ? index.steps(options.lookahead, options.mask)
                                            : nullptr;
}

/// What may be drawn, counted by page; total() is how much there is. Valid for as long as a sampler
/// of these options lives. `version` changes whenever it does.
struct Counted {
  const store::SumTree& counts;
  uint64_t version;
};
inline Counted counted(const SamplerOptions& options, store::Index& index) {
  if (const std::shared_ptr<store::Drawable> steps = drawable_steps(options, index)) {
    return {steps->counts(), steps->version()};
  }
  return {index.drawables().heads(), index.drawables().heads_version()};
}

/// Where a sampler is in its sequence of draws: with the same content, the same position continues
/// with the same draws.
struct SamplerPosition {
  uint64_t draws = 0;  ///< made so far; kSequential: in this epoch
  uint64_t epoch = 0;
  uint64_t size = 0;  ///< kSequential: steps (episodes) of this epoch, 0 before it starts
  double beta = 0;    ///< kWeighted
};

/// What samplers have in common, wherever they select: their place in a sequence of draws.
class Law {
 public:
  virtual ~Law() = default;

  virtual SamplerPosition position() const { return {}; }
  /// From the next selection on.
  virtual void restore(const SamplerPosition&) {}
  /// Importance-sampling exponent from the next selection on. Throws InvalidArgument for a number
  /// that is negative or not finite, and where it is not kWeighted.
  virtual void set_beta(double beta);
};

/// Throws the InvalidArgument of a law that has no beta.
[[noreturn]] void refuse_beta();

/// Chooses steps (or episodes). One method; each policy is one file and states its cost.
///
/// Draws come from a counter-based generator (seed, number of the draw): a sampler has no hidden
/// state, and the same seed over the same content gives the same ids.
class Sampler : public Law {
 public:
  /// Appends up to `count` items to `out`, which the caller has cleared. Fewer when the policy has
  /// no more to give; none at the end of an epoch (kSequential), whose successor starts with the
  /// next call. The caller holds the shard's lock and has made sure that something may be drawn.
  virtual void select(store::Index& index, uint64_t count, Selection& out) = 0;
};

/// Throws InvalidArgument for alpha or beta that are negative or not finite.
void check_options(const SamplerOptions& options);
void check_beta(double beta);

/// Throws InvalidArgument as check_options, and for kSequential over an index with
/// max_times_sampled.
std::unique_ptr<Sampler> make_sampler(const SamplerOptions& options, store::Index& index);

/// One maker per policy, each in its file.
std::unique_ptr<Sampler> make_uniform(const SamplerOptions& options, store::Index& index);
std::unique_ptr<Sampler> make_weighted(const SamplerOptions& options, store::Index& index);
std::unique_ptr<Sampler> make_sequential(const SamplerOptions& options, store::Index& index);
std::unique_ptr<Sampler> make_ordered(const SamplerOptions& options, store::Index& index);
std::unique_ptr<Sampler> make_topk(const SamplerOptions& options, store::Index& index);

/// The batches of one epoch of kSequential over so many items; 0 for the endless policies.
uint64_t batches_per_epoch(const SamplerOptions& options, uint64_t offered, uint64_t batch_size);
/// The same over the index as it is.
uint64_t batches_per_epoch(const SamplerOptions& options, store::Index& index, uint64_t batch_size);

/// Largest number of draws made in one go; bounds the scratch memory of a sampler.
constexpr uint64_t kDrawChunk = 1024;

}  // namespace gear::select

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/names.h"
#include "select/chance.h"
#include "store/index/index.h"

namespace gear::select {

enum class Policy : uint8_t { kUniform, kWeighted, kSequential, kFifo, kLifo, kTopK };
inline constexpr base::Names<Policy, 6> kPolicies{
    "[sampler] policy", {"uniform", "weighted", "sequential", "fifo", "lifo", "topk"}};

/// By whose largest importance weight the others are divided: that of the batch, or of all that may
/// be drawn.
enum class Normalize : uint8_t { kBatch, kBuffer };
inline constexpr base::Names<Normalize, 2> kNormalizations{"[sampler] normalize",
                                                           {"batch", "buffer"}};

struct SamplerOptions {
  Policy policy = Policy::kUniform;
  store::Unit unit = store::Unit::kStep;
  uint64_t seed = 0;
  double alpha = 0.6;                       // kWeighted: P(i) proportional to priority^alpha
  double beta = 0.4;                        // kWeighted: importance weights (N P(i))^-beta / max
  Normalize normalize = Normalize::kBatch;  // kWeighted: whose max that is
  bool shuffle = true;                      // kSequential
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

/// Where a law is in its sequence of draws: with the same content, the same position continues with
/// the same draws.
struct SamplerPosition {
  Position numbers;  ///< the law's own; it passes over what is behind those that it has
  double beta = 0;   ///< kWeighted
};

/// A law of draws: *space* times *chance*. The space says what is drawn from, and how wide each
/// item is (select::Space: a set of steps or episodes, equal or by their weights); the chance where
/// targets fall in it (select::Chance). A law without a chance takes the first items of an order
/// (select::Order). It is the same wherever it draws:
///
///     Sampler          from one shard
///     GroupSampler     from those of all ranks, end to end
///     DeviceSampler    on a GPU, from a mirror
class Law {
 public:
  /// Throws InvalidArgument for alpha or beta that are negative or not finite, and for a mask with
  /// whole episodes.
  explicit Law(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  bool is_weighted() const { return options_.policy == Policy::kWeighted; }
  /// Whether its importance weights need the least probability of all that may be drawn.
  bool needs_least_of_all() const {
    return is_weighted() && options_.normalize == Normalize::kBuffer;
  }
  /// Null: it takes the first items of an order, which leaves nothing to chance.
  Chance* chance() const { return chance_.get(); }
  /// The chance of kSequential; null for others.
  Epoch* epoch() const;
  /// Of importance weights; 0 where it has none.
  double beta() const { return is_weighted() ? options_.beta : 0; }

  SamplerPosition position() const;
  /// From the next selection on. Throws InvalidArgument for what no position() of this law is.
  void restore(const SamplerPosition& position);
  /// From the next selection on. Throws InvalidArgument for a number that is negative or not
  /// finite, and where the law is not kWeighted.
  void set_beta(double beta);
  /// How often the two were called: a copy of the position elsewhere is out of date then.
  uint64_t changes() const { return changes_; }

 private:
  SamplerOptions options_;
  std::unique_ptr<Chance> chance_;
  uint64_t changes_ = 0;
};

/// Where steps may be drawn, but each has priority 0: throws InvalidArgument.
[[noreturn]] void throw_weightless();

/// Throws InvalidArgument as Law.
void check_options(const SamplerOptions& options);
/// The steps that it may draw; null where it draws whole episodes.
inline std::shared_ptr<store::Drawable> drawable_steps(const SamplerOptions& options,
                                                       store::Index& index) {
  return options.unit == store::Unit::kStep ? index.steps(options.lookahead, options.mask)
                                            : nullptr;
}

/// What may be drawn, counted by page; total() is how much there is. Valid for as long as a sampler
/// of these options lives.
const store::SumTree& counted(const SamplerOptions& options, store::Index& index);

/// The batches of one epoch of kSequential over so many items; 0 for the endless policies.
uint64_t batches_per_epoch(const SamplerOptions& options, uint64_t offered, uint64_t batch_size);
/// The same over the index as it is.
uint64_t batches_per_epoch(const SamplerOptions& options, store::Index& index, uint64_t batch_size);

}  // namespace gear::select

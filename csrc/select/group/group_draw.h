#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "select/selection.h"

namespace gear::select {

/// A batch over all ranks, as one of them is asked for it.
struct GroupRequest {
  /// Gives `mine` to every rank; `all`: what each gave, rank after rank, counts[r] numbers of rank
  /// r's. Collective, with the same counts on all; the lock is not held meanwhile.
  using Gather = std::function<void(std::span<const uint64_t> mine,
                                    std::span<const uint64_t> counts, std::span<uint64_t> all)>;

  uint64_t items;                     ///< over all ranks
  std::span<const std::byte> offers;  ///< of all ranks, one after the other
  bool numbered;                      ///< whether GroupDraw::own_draws is asked for
  Gather gather;
};

/// The draws of one global batch.
struct GroupDraw {
  static constexpr float kNone = std::numeric_limits<float>::infinity();

  uint64_t items = 0;               ///< over all ranks; 0: end of an epoch
  std::vector<uint64_t> counts;     ///< by rank: how many of them its shard holds
  Selection own;                    ///< those that this rank holds, in the order of the draws
  std::vector<uint32_t> own_draws;  ///< and which of the draws each is: ascending
  /// Of the importance weights, see below; only kWeighted has any.
  double beta = 0;
  float least = kNone;  ///< probability of all ranks' draws, or of all that they have

  void clear() {
    items = 0;
    counts.clear();
    own.clear();
    own_draws.clear();
    least = kNone;
  }
};

}  // namespace gear::select

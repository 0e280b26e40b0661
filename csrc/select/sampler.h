#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "select/law.h"
#include "select/order.h"
#include "select/space.h"

namespace gear::select {

/// Draws from one shard by a law.
class Sampler {
 public:
  /// Throws as Law; and InvalidArgument for kSequential over an index with max_times_sampled.
  Sampler(const SamplerOptions& options, store::Index& index);

  Law& law() { return law_; }
  const Law& law() const { return law_; }

  /// Appends up to `count` items to `out`, which the caller has cleared. Fewer when the law has no
  /// more to give; none at the end of an epoch, whose successor starts with the next call. The
  /// caller holds the shard's lock and has made sure that something may be drawn.
  /// Throws InvalidArgument where is_weightless().
  void select(store::Index& index, uint64_t count, Selection& out);
  /// As select::counted(); for as long as the sampler lives.
  const store::SumTree& offered() const { return offered_; }
  /// Whether there are items, each of which weighs 0.
  bool is_weightless(const store::Index& index) const {
    return law_.is_weighted() && space_.total(index) == 0 && offered_.total() > 0;
  }

 private:
  void draw(store::Index& index, uint64_t count, Selection& out);
  void add(const store::Index& index, uint64_t items, double total, Selection& out);

  Law law_;
  Space space_;
  const store::SumTree& offered_;
  InOrder in_order_;  // of an epoch that is not shuffled
  Order order_;
  std::vector<Order::Item> listed_;
  std::vector<uint64_t> targets_;
};

}  // namespace gear::select

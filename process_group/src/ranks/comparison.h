#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ranks/ring.h"
#include "ranks/signature.h"

namespace gear::process_group {

/// Compares what all ranks give to a collective call, in messages beside those that carry it. In
/// step k, rank r sends to rank r + 2^k, and hears rank r - 2^k:
///
///     step 0: 0 -> 1 -> 2 -> ... -> 0     step 1: 0 -> 2 -> 4 -> ...     up to log2(ranks)
///
/// A rank takes a step only if it agreed in those before. Who has taken all has therefore heard, by
/// way of others, all ranks, and no rank ends a call to which any rank gives something else: this
/// is a barrier, too. Under the engine's lock.
class Comparison {
 public:
  Comparison(Ring& ring, uint64_t number, const Signature& own);
  ~Comparison();
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  /// Goes on as far as it can; whether all ranks agree. Throws TransportError where they do not.
  bool advance();
  /// Of a group that has failed: gives back what has ended.
  void cancel() noexcept;
  /// Whose message it lacks; -1: none.
  int waited_for() const noexcept;

 private:
  int step() const noexcept { return 1 << num_heard_; }

  Ring& ring_;
  uint64_t number_;
  int tag_;
  std::unique_ptr<Signature> own_;  // read until the requests have ended
  int num_sent_ = 0;
  int num_heard_ = 0;
  std::vector<Wire::Request> sent_;  // until all have ended
};

}  // namespace gear::process_group

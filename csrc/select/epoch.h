#pragma once

#include <optional>

#include "base/numbers/permutation.h"
#include "select/items.h"

namespace gear::select {

/// Where kSequential is in its epoch, wherever it selects.
class Epoch {
 public:
  /// How many of the epoch's items the next batch of up to `count` holds, and accounts for them; 0
  /// at the end of the epoch, and the next one begins. Throws InvalidArgument when the content
  /// changed since the epoch began, and the next one begins then too. The content offers so many
  /// items, and its `version` is another one after any change.
  uint64_t next(uint64_t size, uint64_t version, uint64_t count, bool drop_last);

  /// Number of the first item of the batch that next() accounted for.
  uint64_t first() const { return first_; }
  const SamplerPosition& position() const { return at_; }
  void restore(const SamplerPosition& position);

  /// The order of this epoch's items, shuffled.
  base::Permutation order(uint64_t seed) const;
  /// With which each item is drawn.
  float probability() const { return one_of(at_.size); }

 private:
  void begin_next() { restore({0, at_.epoch + 1, 0, 0}); }

  SamplerPosition at_;
  uint64_t first_ = 0;
  std::optional<uint64_t> version_;  // of the content when the epoch began
};

}  // namespace gear::select

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/numbers/permutation.h"
#include "base/numbers/philox.h"

namespace gear::select {

/// Where a law stands in its sequence of draws. What the numbers mean is the law's own: with the
/// same content, the same numbers continue with the same draws.
using Position = std::vector<uint64_t>;

class Epoch;

/// Where the items of a law fall in what it draws from (select::Space, of one shard or of all ranks
/// end to end): numbers below its total. A pure function of a seed and a position, by a
/// counter-based generator: nothing else is remembered, and the same everywhere.
///
///     items = next(total, ...)           what the batch will hold, which counts from here on
///     targets(0, ...), scan(...)         its items, in any order, from any thread
class Chance {
 public:
  virtual ~Chance() = default;

  /// How many items the next batch of up to `count` holds, and accounts for them; 0 where there is
  /// nothing, or at the end of an epoch, and the next one begins. What it is drawn from has so many
  /// items or, where they have weights, so much weight, and another `version` after any change.
  virtual uint64_t next(uint64_t total, uint64_t version, uint64_t count) = 0;
  /// Of that batch, where its items from number `first` on fall. Not of an epoch in order.
  virtual void targets(uint64_t first, std::span<uint64_t> targets) const = 0;
  /// Of its items [first, first + some), those that fall on `part`: their numbers, ascending, and
  /// on which of its places they fall; each with room for one more than `some`. Returns how many.
  virtual size_t scan(const base::RangePart& part, uint64_t first, uint32_t some, uint32_t* numbers,
                      uint64_t* offsets) const = 0;

  /// Itself, where it goes through what there is once; null for others.
  virtual Epoch* as_epoch() { return nullptr; }
  virtual Position position() const = 0;
  /// By the first numbers, as many as position() has; none: where it begins. Throws InvalidArgument
  /// for fewer, or for what no position() is.
  virtual void restore(std::span<const uint64_t> position) = 0;
};

/// Independent draws, with replacement. One number of the generator each.
class Independent final : public Chance {
 public:
  explicit Independent(uint64_t seed) : seed_(seed) {}

  uint64_t next(uint64_t total, uint64_t version, uint64_t count) override;
  void targets(uint64_t first, std::span<uint64_t> targets) const override;
  size_t scan(const base::RangePart& part, uint64_t first, uint32_t some, uint32_t* numbers,
              uint64_t* offsets) const override;
  Position position() const override { return {made_}; }
  void restore(std::span<const uint64_t> position) override;

  uint64_t made() const { return made_; }

 private:
  uint64_t seed_;
  uint64_t made_ = 0;
  // Of the batch:
  uint64_t first_ = 0;
  uint64_t total_ = 0;
};

/// Epochs without replacement: every item once, shuffled by a keyed permutation of their numbers,
/// so that no list of them is kept, or in the order of the content.
class Epoch final : public Chance {
 public:
  Epoch(uint64_t seed, bool shuffles, bool drops_last)
      : seed_(seed), shuffles_(shuffles), drops_last_(drops_last) {}

  /// Throws InvalidArgument when the content changed since the epoch began, and the next one begins
  /// then too.
  uint64_t next(uint64_t total, uint64_t version, uint64_t count) override;
  void targets(uint64_t first, std::span<uint64_t> targets) const override;
  size_t scan(const base::RangePart& part, uint64_t first, uint32_t some, uint32_t* numbers,
              uint64_t* offsets) const override;
  Epoch* as_epoch() override { return this; }
  Position position() const override { return {drawn_, epoch_, size_}; }
  void restore(std::span<const uint64_t> position) override;

  bool shuffles() const { return shuffles_; }
  bool has_begun() const { return size_ > 0; }
  /// Number of the batch's first item in the epoch.
  uint64_t first() const { return first_; }
  /// The order of this epoch's items, shuffled.
  base::Permutation order() const;

 private:
  void begin_next();

  uint64_t seed_;
  bool shuffles_;
  bool drops_last_;
  uint64_t drawn_ = 0;  // in this epoch
  uint64_t epoch_ = 0;
  uint64_t size_ = 0;  // of this epoch; 0 before it begins
  uint64_t first_ = 0;
  std::optional<uint64_t> version_;  // of the content when the epoch began
};

}  // namespace gear::select

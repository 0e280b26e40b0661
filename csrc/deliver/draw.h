#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "deliver/request.h"
#include "store/shard.h"

namespace gear::deliver {

/// What a batch drew of a shard, which outlives this, until it is delivered or given back. Empty
/// where nothing was drawn, and after either.
class TakenBatch {
 public:
  TakenBatch() = default;
  TakenBatch(store::Shard& shard, store::TakenDraws draws)
      : shard_(&shard), draws_(std::move(draws)) {}

  const store::TakenDraws& draws() const { return draws_; }
  void deliver();
  void give_back() noexcept;

 private:
  store::Shard* shard_ = nullptr;
  store::TakenDraws draws_;
};

/// One draw from a shard, under its lock: first it is allowed, then made, then it counts.
///
///     Draw draw(shard, lock);   draw.wait(...)   select, plan   draw.commit(...)
///
/// What was selected and did not come to commit() is given back when this goes, which takes the
/// lock where it was given up meanwhile.
class Draw {
 public:
  Draw(store::Shard& shard, std::unique_lock<std::mutex>& lock) : shard_(shard), lock_(lock) {}
  ~Draw();
  Draw(const Draw&) = delete;
  Draw& operator=(const Draw&) = delete;

  /// Waits up to timeout_s until a batch may be drawn of what is `offered`, and, where the law
  /// `looks` at priorities of the index, for the GPUs that are ahead with them; false when none
  /// may. Throws InvalidArgument where nothing is offered and no rate limiter says to wait for it,
  /// unless `ahead`.
  bool wait(const LoaderOptions& options, const store::SumTree& offered, bool looks, bool ahead,
            std::optional<double> timeout_s);

  /// Ends it, and gives the lock up: `items` are `taken`. `read`: as Shard::commit().
  void commit(uint64_t items, TakenBatch& taken, store::Read* read);

 private:
  store::Shard& shard_;
  std::unique_lock<std::mutex>& lock_;
  bool committed_ = false;
};

}  // namespace gear::deliver

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "store/shard.h"

namespace gear::store {

/// Appends steps to one open episode at a time. One thread uses a writer; any number of writers
/// share a shard. The lock is taken once per append; more than 32 KiB of rows are copied without
/// it, into pages that only this writer fills.
class Writer {
 public:
  using Rows = std::span<const std::byte* const>;  ///< one pointer a column, to contiguous rows

  /// `continue_uid` names an open episode without a writer to go on with.
  explicit Writer(std::shared_ptr<Shard> shard,
                  std::optional<uint64_t> continue_uid = std::nullopt);
  /// Ends an open episode as truncated.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  const Shard& shard() const { return *shard_; }

  /// Appends `count` steps, opening an episode if none is open. `priorities`: one a step, or empty
  /// for the largest seen so far. Throws OutOfMemory when no page can be evicted: the steps before
  /// that page are stored.
  void append(Rows columns, uint64_t count, std::span<const float> priorities) {
    uint64_t done = 0;
    append_some(columns, count, priorities, done, std::nullopt);
  }
  /// The same from the `done`-th step on, counting on in `done`: page by page, as the rate limiter
  /// lets them in. False when it has let in none for timeout_s.
  bool append_some(Rows columns, uint64_t count, std::span<const float> priorities, uint64_t& done,
                   std::optional<double> timeout_s);

  /// Ends the open episode, if any. `closing[c]` is the closing step's row of column c or null;
  /// empty for none. `weight` < 0: mean of the steps' priorities.
  void end_episode(EpisodeState state, double weight, Rows closing);

  std::optional<uint64_t> episode_uid() const;

 private:
  void write(Rows columns, uint64_t from, uint64_t rows);

  std::shared_ptr<Shard> shard_;
  Shard::Place at_;
  std::vector<float> default_priorities_;
};

}  // namespace gear::store

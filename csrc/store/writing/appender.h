#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "store/shard.h"

namespace gear::store {

/// Writes into the open episodes of a shard, their steps and their ends: what Writer and
/// VectorWriter stand on. Every call takes the lock, and then
///
///     lease                       copy                          publish
///     room behind the last step   rows, column by column;       the index has the steps, then one
///     of one episode or of N:     above 32 KiB without the      notice
///     rate limit, pages, sink     lock
///
/// Where each episode is, its Place, is the caller's to keep. One thread uses an appender; any
/// number of them share a shard.
class Appender {
 public:
  using Place = Shard::Place;
  using Rows = Pages::Rows;
  using EnvironmentRows = Pages::EnvironmentRows;

  /// `shard` outlives it.
  explicit Appender(Shard& shard);

  /// The end of an open episode that no writer holds; throws as Index::adopt_episode().
  Place adopt(uint64_t uid);
  /// Of each that is named; where one throws, none is adopted.
  std::vector<Place> adopt(std::span<const std::optional<uint64_t>> uids);
  /// Writes `count` steps behind the last step of `at`, from the `done`-th on, and counts on in
  /// `done`: page by page, as many at a time as the page and the rate limiter have room for. Opens
  /// an episode where there is none. `priorities`: one a step, or empty for the largest seen so
  /// far. More than 32 KiB of rows are copied without the lock, into pages that only this writer
  /// fills.
  ///
  /// Waits for the rate limiter, up to timeout_s (none: for ever; false is returned then), for
  /// readers of a page that is to be used again, for a GPU that is a whole RowSink behind, and for
  /// the end of a draw that is out; without the lock. Throws OutOfMemory where no page can be
  /// evicted, InvalidArgument in the thread whose draw is out: the steps before that page are
  /// stored; and as Shard::check_process().
  bool append(Place& at, Rows columns, uint64_t count, std::span<const float> priorities,
              uint64_t& done, std::optional<double> timeout_s);
  /// Ends the episode of `at`, as Index::end_episode(). `closing[c]` is the closing step's row of
  /// column c or null; empty for none. The rate limiter knows nothing of that step. Throws as
  /// Shard::check_process().
  void end_episode(Place& at, EpisodeState state, double weight, Rows closing);

  /// A step of each of several environments.
  struct EnvironmentSteps {
    std::span<Place* const> places;  ///< of those that take part
    std::span<const uint64_t> rows;  ///< of each, its row in the columns
    EnvironmentRows given;
    std::span<const float> priorities;  ///< one a place, or empty
  };
  using EnvironmentEnd = Shard::End;
  /// As append() of a step to each place, with one notice: pages for all of them, as many as the
  /// rate limiter lets in, are there before any of their rows is stored. `done` counts places.
  /// Where so many episodes cannot be open at once it throws OutOfMemory before a page goes.
  /// However it ends, no episode is open that has no step.
  bool append(const EnvironmentSteps& steps, uint64_t& done, std::optional<double> timeout_s);
  /// As end_episode() of each, in this order. `closing.columns` is empty for none.
  void end_episodes(std::span<const EnvironmentEnd> ends, const EnvironmentRows& closing);

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool is_new() const;
  bool has_room(const Place& at) const;
  /// A few rows; on tier kDevice all, of which the copy is only begun here.
  bool copies_locked(uint64_t rows) const { return rows <= most_locked_; }
  void wait_for_sink(Lock& lock, uint64_t bytes);
  uint64_t lease(Lock& lock, Place& at, uint64_t wanted, std::optional<double> timeout_s);
  uint64_t lease(Lock& lock, std::span<Place* const> places, uint64_t on_device,
                 std::optional<double> timeout_s);
  uint64_t lease_closing(Lock& lock, std::span<const EnvironmentEnd> ends);
  void copy_closing(Lock& lock, bool locked, std::span<const EnvironmentEnd> ends,
                    const EnvironmentRows& closing);
  std::optional<uint32_t> checksum_on_device(const EnvironmentSteps& steps);
  void append(Lock& lock, const EnvironmentSteps& steps, uint64_t first, uint64_t count,
              std::optional<uint32_t> checksum);
  void require_pages(Lock& lock, std::span<Place* const> places);
  void leave_unfilled(std::span<Place* const> places);

  Shard& shard_;
  uint64_t most_locked_;                 // rows
  std::vector<RowSink::RowMove> moves_;  // of one call
};

}  // namespace gear::store

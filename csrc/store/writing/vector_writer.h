#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "store/writing/appender.h"

namespace gear::store {

/// Appends the steps of N environments, each to an episode of its own. One thread uses it.
///
/// With `next_step` an environment that has ended is reset by the call behind it (Gymnasium's
/// AutoresetMode.NEXT_STEP): the row that it then gives is no step, and shows what the last step
/// led to. Of that row comes the closing step, and until then the episode counts as open. Else an
/// episode ends with its last step, and the closing step is given with it.
class VectorWriter {
 public:
  /// One call of the environments. A null pointer stands for what is not given.
  struct Call {
    Pages::EnvironmentRows columns;
    std::span<const float> priorities;  ///< one an environment, or empty
    const bool* terminated = nullptr;   ///< by environment; with both, terminated counts
    const bool* truncated = nullptr;
    const bool* mask = nullptr;      ///< those that take part; none: all
    Pages::EnvironmentRows closing;  ///< of the closing steps, one pointer each or null; or empty
  };

  /// `continue_uids`: open episodes without a writer to go on with, one an environment; or empty.
  /// `ended`: of them, what ended() of the writer before said; or empty for none. Throws
  /// InvalidArgument where N open episodes leave no page for another, and as
  /// Shard::check_process().
  VectorWriter(std::shared_ptr<Shard> shard, uint64_t num_environments, bool next_step,
               std::span<const std::optional<uint64_t>> continue_uids,
               std::span<const EpisodeState> ended);
  /// Ends open episodes: those that their environments ended as these did, the others as truncated;
  /// in a forked child nothing, since they are the parent's.
  ~VectorWriter();
  VectorWriter(const VectorWriter&) = delete;
  VectorWriter& operator=(const VectorWriter&) = delete;

  uint64_t num_environments() const { return at_.size(); }
  bool next_step() const { return next_step_; }
  /// The environments whose episodes the call will end: with next_step those that ended before.
  void list_ending(const Call& call, std::vector<uint64_t>& out) const;

  /// Takes the call, which write() then stores: what it points to stays, and flags as they are,
  /// until that is done.
  void begin(const Call& call);
  /// False when the rate limit let not all in within timeout_s: the next call goes on. Throws as
  /// Appender::append(). The first num_done() steps are stored then, with their ends, and no other.
  /// Where there is no page for a closing step, it and those behind it are left out of the episodes
  /// that end, and OutOfMemory is thrown behind all else.
  bool write(std::optional<double> timeout_s);
  /// How many of the call's steps are stored, and how many it has.
  uint64_t num_done() const { return done_; }
  uint64_t num_steps() const { return places_.size(); }
  /// Ends the episodes of those environments that have one open; throws OutOfMemory as write().
  void end_episodes(const Call& call, bool terminated);

  /// Whether it has an episode open that it has not ended.
  bool is_running(uint64_t environment) const {
    return at_[environment].episode != kNone && ended_[environment] == EpisodeState::kOpen;
  }
  /// With next_step, how an environment has ended whose next row closes its episode; else kOpen.
  EpisodeState ended(uint64_t environment) const { return ended_[environment]; }
  /// Of the open episode, by environment.
  std::optional<uint64_t> episode_uid(uint64_t environment) const;

 private:
  bool takes_part(const Call& call, uint64_t environment) const {
    return call.mask == nullptr || call.mask[environment];
  }
  static EpisodeState state_of(const Call& call, uint64_t environment);
  void list_end(uint64_t environment, EpisodeState state);
  void end_stored(uint64_t from);
  void end_listed(const Pages::EnvironmentRows& closing);
  uint64_t end_without_closing();

  std::shared_ptr<Shard> shard_;
  Appender appender_;
  bool next_step_;
  std::vector<Shard::Place> at_;
  std::vector<EpisodeState> ended_;  // with next_step: kOpen, or how it ended
  // Of one call:
  Call call_;
  std::vector<Shard::Place*> places_;
  std::vector<uint64_t> rows_;
  std::vector<float> priorities_;
  std::vector<std::pair<uint64_t, EpisodeState>> due_;  // with next_step: what this call closes
  std::vector<Appender::EnvironmentEnd> ends_;
  uint64_t done_ = 0;
};

}  // namespace gear::store

#pragma once

#include <memory>
#include <optional>
#include <span>

#include "store/writing/appender.h"

namespace gear::store {

/// Appends steps to one open episode at a time. One thread uses a writer; any number of writers
/// share a shard.
class Writer {
 public:
  using Rows = Pages::Rows;

  /// `continue_uid` names an open episode without a writer to go on with. Throws as
  /// Shard::check_process().
  explicit Writer(std::shared_ptr<Shard> shard,
                  std::optional<uint64_t> continue_uid = std::nullopt);
  /// Ends an open episode as truncated; in a forked child nothing, since it is the parent's.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// As Appender::append(), of all steps and without a time-out.
  void append(Rows columns, uint64_t count, std::span<const float> priorities) {
    uint64_t done = 0;
    append_some(columns, count, priorities, done, std::nullopt);
  }
  bool append_some(Rows columns, uint64_t count, std::span<const float> priorities, uint64_t& done,
                   std::optional<double> timeout_s) {
    return appender_.append(at_, columns, count, priorities, done, timeout_s);
  }

  /// Ends the open episode, if any; as Appender::end_episode(). `weight` < 0: mean of the steps'
  /// priorities. Throws as Shard::check_process() whether or not there is one.
  void end_episode(EpisodeState state, double weight, Rows closing);

  /// Of the open episode.
  std::optional<uint64_t> episode_uid() const;
  /// Its steps up to here, evicted ones included; 0 without one. Takes the lock.
  uint64_t episode_steps() const;

 private:
  std::shared_ptr<Shard> shard_;
  Appender appender_;
  Shard::Place at_;
};

}  // namespace gear::store

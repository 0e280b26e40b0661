#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/index/index.h"

namespace gear::store {

/// What is to change an index while a draw over many shards is out, in the order in which it came.
class Intake {
 public:
  /// As the calls of Index with these names.
  void append(uint32_t episode, std::span<const float> priorities);
  void end_episode(uint32_t episode, EpisodeState state, double weight, uint64_t closing_columns);
  void update(std::span<const int64_t> ids, std::span<const float> priorities);
  void deliver(TakenDraws draws);
  void give_back(TakenDraws draws);

  /// Applies all of it, and is empty then.
  void apply(Index& index);

 private:
  enum class Kind : uint8_t { kAppend, kEnd, kUpdate, kDeliver, kGiveBack };

  // What it is about beyond these numbers lies in the vectors below, in the order of the changes.
  struct Change {
    Kind kind;
    EpisodeState state = EpisodeState::kOpen;
    uint32_t episode = kNone;
    uint64_t count = 0;  // priorities
    double weight = -1.0;
    uint64_t closing_columns = 0;
  };

  std::vector<Change> changes_;
  std::vector<float> priorities_;
  std::vector<int64_t> ids_;
  std::vector<TakenDraws> draws_;
};

}  // namespace gear::store

#pragma once

#include <cstdint>
#include <limits>

#include "base/names.h"

namespace gear::store {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

enum class EpisodeState : uint8_t { kOpen, kTerminated, kTruncated };
inline constexpr base::Names<EpisodeState, 3> kEpisodeStates{"[buffer] state",
                                                             {"open", "terminated", "truncated"}};

enum class Unit : uint8_t { kStep, kEpisode };
inline constexpr base::Names<Unit, 2> kUnits{"[sampler] unit", {"step", "episode"}};

/// What one page holds: `rows` consecutive steps of `episode`, from step number `first_step` on.
/// A free page has episode == kNone.
struct alignas(32) Page {
  uint32_t generation = 0;  ///< uses of this page so far; part of every id that points into it
  uint32_t episode = kNone;
  uint32_t previous = kNone;  ///< neighbours in the episode
  uint32_t next = kNone;
  uint64_t first_step = 0;  // always a multiple of page_steps
  uint16_t rows = 0;        // rows written, a closing step among them
  uint16_t anchors = 0;     // rows [0, anchors) are steps
};
static_assert(sizeof(Page) == 32, "two pages a cache line: a draw reads one at random");

__extension__ using PrioritySum = unsigned __int128;

/// One episode: a chain of pages, every one full but the last.
//
///   step numbers   0 ...... begin ................... end  [closing step]
///                  evicted  | stored                      | never drawn
struct Episode {
  uint64_t uid = 0;  ///< creation number, unique in the buffer's life
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t closing_columns = 0;  // bit c: the closing step has column c; 0: no closing step
  PrioritySum priority_sum = 0;  // of the stored steps: see priority_sum.h
  double weight = -1.0;          // the episode's own priority; negative: mean of its steps'
  uint32_t head = kNone;         // first and last stored page
  uint32_t tail = kNone;
  uint32_t older = kNone;  // neighbours in creation order
  uint32_t newer = kNone;
  uint32_t times_sampled = 0;  ///< as an episode
  EpisodeState state = EpisodeState::kOpen;
  bool has_writer = false;  // some writer appends to it; not saved

  bool ended() const { return state != EpisodeState::kOpen; }
};

}  // namespace gear::store

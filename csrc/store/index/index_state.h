#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/names.h"
#include "memory/large_vector.h"
#include "store/drawable/priority_sum.h"
#include "store/episode.h"

namespace gear::store {

/// Which page goes when one is needed and none is free: under kFifo that of the oldest step, else
/// the first one of the newest ended episode, or of the one with the lowest priority; where none
/// has ended, that of the oldest step of the open episode that needs the page, else of all. An open
/// episode keeps its last page, but for its own next step: under kFifo in turn, else where no other
/// page can go.
enum class Evict : uint8_t { kFifo, kLifo, kLowestPriority };
inline constexpr base::Names<Evict, 3> kEvictions{"[buffer] evict",
                                                  {"fifo", "lifo", "lowest_priority"}};

struct IndexOptions {
  uint64_t num_pages = 0;
  uint64_t page_steps = 0;
  uint32_t owner = 0;  ///< rank written into ids
  Evict evict = Evict::kFifo;
  uint32_t max_times_sampled = 0;  ///< 0: no limit; else a step drawn that often is offered no more

  uint64_t num_slots() const { return num_pages * page_steps; }
};

struct Counters {
  uint64_t steps_inserted = 0;
  uint64_t steps_evicted = 0;
  uint64_t steps_sampled = 0;      ///< draws that were delivered
  uint64_t stale_updates = 0;      ///< updates of steps that had been evicted
  uint64_t saturated_weights = 0;  ///< priorities above 0 too small for their weight, which is 1
};

/// What is kept of each step: in an index by slot; as a checkpoint holds it, of the pages in use
/// alone, in the order of used_pages().
struct Slots {
  memory::LargeVector<float> priorities;
  std::vector<uint16_t> times_sampled;  ///< empty without max_times_sampled
};

/// The structure of an index: which episodes and pages there are, and what is counted. With the
/// slots it is all that a checkpoint stores; the rest (trees, lists of free episodes) follows.
struct IndexState {
  memory::LargeVector<Page> pages;
  std::vector<uint64_t> arrived;    ///< by page in use: ascends as they were filled
  std::vector<Episode> episodes;    ///< slots, never more than pages; uid == 0 marks a free one
  std::deque<uint32_t> free_pages;  ///< in the order in which they will be used
  uint32_t oldest = kNone;          ///< creation order of episodes
  uint32_t newest = kNone;
  uint64_t next_uid = 1;
  uint64_t num_steps = 0;
  uint64_t num_episodes = 0;
  float max_priority = 0;  ///< of steps, seen so far; 0: none but 0
  float max_weight = 0;    ///< the same of episodes' own
  int32_t sum_shift =
      store::sum_shift(0);   ///< of Episode::priority_sum; by max_priority, not saved
  uint32_t identity = 0;     ///< of the content's history; 0: nothing was ever stored
  uint32_t seeds_given = 0;  ///< to loaders that were made without a seed
  Counters counters;

  /// Of a step that is appended without one: the largest seen so far.
  float default_priority() const { return max_priority > 0 ? max_priority : 1.0F; }
  float largest_of_episodes() const {
    return max_priority > max_weight ? max_priority : max_weight;
  }
};

/// One step, by place.
struct Anchor {
  uint32_t page;
  uint32_t row;
};

/// One draw of a step or of an episode that may be drawn only so often, by a name that outlives its
/// place.
struct Use {
  uint64_t name;             ///< a step's id; an episode's uid
  uint32_t episode = kNone;  ///< of an episode as a whole: its slot
};

/// What one batch drew of an index and of what the rate limiter allows, until it is delivered: then
/// its draws count, or else they are given back.
///
///     draw ──► taken ──┬── delivered: counts in steps_sampled; spent episodes are freed
///                      └── given back: may be drawn again, as if it never was
struct TakenDraws {
  uint64_t items = 0;     ///< that the rate limiter allowed
  uint64_t draws = 0;     ///< of this index
  std::vector<Use> uses;  ///< each of them with max_times_sampled; else none
};

}  // namespace gear::store

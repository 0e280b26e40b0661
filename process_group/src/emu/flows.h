#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "ranks/clock.h"

namespace gear::emu {

using process_group::Time;

/// Links that an operation goes over, of kMostLinks in all: a bit each. Those of a process: what
/// two of its groups both use, they share.
using Links = uint32_t;
constexpr int kMostLinks = 32;

/// An operation under way, in the time of the modelled cluster.
struct Flow {
  Links links = 0;
  double remaining_s = 0;  ///< of what it takes alone
  Time start;              ///< not before that
  Time end;                ///< once it has ended
  bool is_active = false;
  bool has_ended = false;
};

/// When operations end that share links. A link gives each of its operations the same part of what
/// it has, and an operation is as fast as the most crowded of its links allows. Those of one group
/// go one after the other, as NCCL's do. By the time that callers give, in closed form: nothing
/// here waits.
class Flows {
 public:
  using Pointer = std::shared_ptr<Flow>;

  /// The operations of one group.
  class Line {
   private:
    friend class Flows;
    std::deque<Pointer> flows_;  // the first is under way, or has not started
    Time free_;                  // the one before has ended
  };

  /// Behind the others of its line; `start` may lie before what advance() has seen: it is given
  /// then what it would have had, and the others keep what they had.
  Pointer add(const std::shared_ptr<Line>& line, Links links, Time start, double seconds);

  /// Ends what ends until `now`; those that did, in their order.
  std::vector<Pointer> advance(Time now);

  /// When the next one starts or ends, if none is added; Time::max() with none.
  Time next() const;

 private:
  double slowness(const Flow& flow) const;
  Time end_of(const Flow& flow) const;
  void begin_at(Time now);
  void progress_to(Time now);

  std::list<std::shared_ptr<Line>> lines_;  // those with operations
  Time now_;
};

}  // namespace gear::emu

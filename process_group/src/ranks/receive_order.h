#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ranks/wire.h"

namespace gear::process_group {

/// The receives of a group for which no message has come, in the order in which they were made: of
/// those that may take the same message, the first takes it. Under the engine's lock.
class ReceiveOrder {
 public:
  /// The place of a new receive from `peer` (or Wire::kAnyone) with `tag`.
  uint64_t take_place(int peer, int tag) {
    open_.push_back({next_, peer, tag});
    return next_++;
  }
  /// Whether no receive before this one may take what comes for it.
  bool is_first(uint64_t place) const {
    const auto own = find(place);
    return std::none_of(open_.begin(), own, [&](const Receive& before) {
      return before.tag == own->tag && (before.peer == own->peer || before.peer == Wire::kAnyone ||
                                        own->peer == Wire::kAnyone);
    });
  }
  /// It has a message, or no longer waits for one.
  void leave(uint64_t place) { open_.erase(find(place)); }

 private:
  struct Receive {
    uint64_t place;
    int peer;
    int tag;
  };

  std::vector<Receive>::const_iterator find(uint64_t place) const {
    return std::ranges::find(open_, place, &Receive::place);
  }

  std::vector<Receive> open_;
  uint64_t next_ = 0;
};

}  // namespace gear::process_group

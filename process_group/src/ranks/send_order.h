#pragma once

#include <cstdint>
#include <map>
#include <utility>

namespace gear::process_group {

/// The sends of a group that MPI has not been given. MPI matches what has the same receiver and tag
/// in the order in which it is given it; a send that waits for a GPU keeps the later ones back.
/// Under the engine's lock.
class SendOrder {
 public:
  /// The place of the next send to `peer` with `tag`. One that gives its place up without being
  /// posted has ended the group.
  uint64_t take_place(int peer, int tag) { return lines_[{peer, tag}].taken++; }
  /// Whether all sends before this place have been posted.
  bool is_first(int peer, int tag, uint64_t place) const {
    return lines_.at({peer, tag}).posted == place;
  }
  void posted(int peer, int tag) {
    const auto line = lines_.find({peer, tag});
    if (++line->second.posted == line->second.taken) {
      lines_.erase(line);  // places begin anew
    }
  }

 private:
  struct Line {
    uint64_t taken = 0;
    uint64_t posted = 0;
  };

  std::map<std::pair<int, int>, Line> lines_;  // those that have unposted sends
};

}  // namespace gear::process_group

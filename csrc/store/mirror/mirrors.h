#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "store/mirror/mirror.h"

namespace gear::store {

/// The mirrors of one index, and the priorities that they are ahead with. At most one a GPU.
//
/// All that hold priorities are given the same updates, so that one speaks for those that are
/// ahead. A mirror that missed an update is *behind*: it does not speak, and takes what it missed
/// by way of the index.
///
///     give()      a and b take the update, c fails and is behind
///     settle()    a ──► index ──► c starts over;  b is settled elsewhere
///
/// Every call is made under the shard's lock. settle(), catch_up() and forget_unused() change the
/// priorities of the index: not while a draw is out.
class Mirrors {
 public:
  std::span<const std::shared_ptr<Mirror>> all() const { return all_; }
  /// That on this GPU; null: there is none.
  std::shared_ptr<Mirror> find(int device) const;
  std::shared_ptr<Mirror> add(std::shared_ptr<Mirror> mirror);
  /// Lets go, settled, of those that nobody else holds.
  void forget_unused();

  // ---- updates of priorities ----
  /// Those that are to be given an update, once all of them have room.
  std::vector<std::shared_ptr<Mirror>> holding_priorities() const;
  /// Calls `update` with each of these, for which it fails or has given the mirror the update.
  /// Where it fails for all, no mirror has changed, and this throws as it did for the last; else
  /// those are behind for which it failed, and catch_up() comes next, as soon as no draw is out.
  void give(std::span<const std::shared_ptr<Mirror>> mirrors,
            const std::function<void(Mirror&)>& update);
  /// As Mirror::raise_failed_update(), of each.
  void raise_failed_updates();

  // ---- what the index lacks ----
  /// Those that have something to give, marked: when they have reached() that, settle() has no more
  /// to wait for than what came after.
  std::vector<std::shared_ptr<Mirror>> mark();
  /// Gives the index what they are ahead with; waits for the GPUs of those. Nobody is behind then.
  void settle();
  /// Whether none is ahead.
  bool settled() const;
  /// settle(), if one is behind.
  void catch_up();

 private:
  std::vector<std::shared_ptr<Mirror>> all_;
  std::vector<std::shared_ptr<Mirror>> behind_;  // of them
};

}  // namespace gear::store

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "emu/flows.h"

namespace gear::emu {

/// What the operations of this process were, and when its threads waited for them, for a trace, if
/// somebody wants one: the first of both, so that a job of days keeps its memory. Any thread may
/// call.
class History {
 public:
  static constexpr size_t kMost = size_t{1} << 17;  ///< of each

  struct Operation {
    const char* name;  ///< as models call it
    int group;         ///< in the order in which this process made them
    int ranks;         ///< of the group
    uint64_t call;     ///< of the group
    uint64_t bytes;
    Time valued;          ///< its values were there
    Flows::Pointer flow;  ///< its time on its links
  };
  struct Wait {
    const char* name;
    Time began;
    Time ended;
  };

  /// The one of this process. It is never destroyed: threads may be in it at the end.
  static History& instance();

  /// From here on; before that nothing is kept, which a call would take half a microsecond for.
  void begin() noexcept { has_begun_ = true; }
  void add(Operation operation);
  void add(Wait wait);

  std::vector<Operation> operations() const;
  std::vector<Wait> waits() const;
  /// Those that came when there was no room.
  uint64_t left_out() const;

 private:
  std::atomic<bool> has_begun_{false};
  mutable std::mutex mutex_;
  std::vector<Operation> operations_;
  std::vector<Wait> waits_;
  uint64_t left_out_ = 0;
};

}  // namespace gear::emu

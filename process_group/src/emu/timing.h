#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers/curve.h"
#include "emu/computing.h"
#include "emu/copies.h"
#include "emu/holds.h"

namespace gear::emu {

/// An emulated member that takes part in no call from one on; calls are numbered on each process.
struct Dead {
  int world_rank;
  uint64_t call;
};

/// From here on, the links are others than before.
struct Change {
  double from_s;
  int stopped;  ///< which of the group's links carries nothing: 1 nvlink, 2 nic; 0: none
};

/// What a group of an emulated job is told when it is made.
struct Plan {
  Links links = 0;
  int ranks = 0;                  ///< of the group
  std::vector<Copy> copies{};     ///< of this process, which come later than it
  std::vector<Dead> dead{};       ///< members
  std::vector<Change> changes{};  ///< by time
  uint64_t seed = 0;
  bool has_one_clock = true;  ///< that all real members share
  /// What an operation takes after so many of the changes.
  std::function<base::Curve(const std::string& operation, size_t changes)> ask;
};

/// What operations of one name came to, in all groups of this process.
struct Tally {
  uint64_t calls = 0;
  uint64_t bytes = 0;
  std::array<double, 6> seconds{};  ///< alone, by basis; the last: of no curve
  uint64_t late_calls = 0;          ///< whose values came after the modelled end
  double late_s = 0;
  double waited_s = 0;        ///< by callers
  uint64_t unseen_calls = 0;  ///< whose waits and ends nobody sees: streams of a GPU wait
};
std::map<std::string, Tally> tallies();

/// The time of one emulated group: when its operations arrive, and what they take. Any thread may
/// call.
class Timing {
 public:
  explicit Timing(Plan plan);
  Timing(const Timing&) = delete;
  Timing& operator=(const Timing&) = delete;

  /// An operation of this process that begins now. Of all real members the largest of each number
  /// counts.
  struct Arrival {
    Time began;          ///< here
    Time time;           ///< of the last of its copies
    double seconds = 0;  ///< that it takes
    int64_t never = 0;   ///< for never_words(); 0: it ends
    const char* operation = nullptr;
    uint64_t bytes = 0;
    uint64_t call = 0;  ///< of the group
  };
  Arrival arrive(const char* operation, uint64_t bytes);
  /// The same of a message, which needs no member but that one.
  Arrival arrive(const char* operation, uint64_t bytes, int peer_world_rank);
  /// Why it never ends.
  static std::string never_words(int64_t never);

  /// That one, whose values are there, behind the group's others, from the latest arrival on.
  Flows::Pointer hold(const Arrival& own, Time start, double seconds);
  /// Beside them.
  Flows::Pointer hold_message(const Arrival& own, Time start);
  /// So long, and over no link.
  static Flows::Pointer pause(double seconds);

  /// A caller has waited for an operation, whose values came `late_s` after its end.
  static void waited(const char* operation, Time begin, Time end, double late_s);
  /// Somebody follows it by a future; it began here at `arrival`.
  static void followed(const char* operation, Time arrival, Time end, double late_s);

  /// The operation is one of a GPU's stream.
  static void unseen(const char* operation);

  uint64_t calls() const noexcept { return calls_; }
  Links links() const noexcept { return plan_.links; }
  bool has_one_clock() const noexcept { return plan_.has_one_clock; }

 private:
  Arrival begin(const char* operation, uint64_t bytes, const std::vector<Dead>& dead);
  const base::Curve& curve(const std::string& operation, size_t changes);
  Flows::Pointer noted(const Arrival& own, Flows::Pointer flow) const;
  static void note(const char* operation, Time begin, Time end, double late_s);

  const int number_;  // in the order in which this process made them
  Plan plan_;
  std::mutex mutex_;
  std::map<std::pair<std::string, size_t>, base::Curve> curves_;
  std::atomic<uint64_t> calls_{0};
  Lag lag_;
  std::shared_ptr<Flows::Line> line_ = std::make_shared<Flows::Line>();
};

}  // namespace gear::emu

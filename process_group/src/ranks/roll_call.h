#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ranks/clock.h"
#include "ranks/group.h"

namespace gear::process_group {

/// Finds out who is missing when a collective call takes too long. Over several rounds a rank often
/// waits for one that is there and waits itself, so whom it waits for says little: it asks all
/// ranks whether they have begun the call. Those that are in a call of gear_mpi answer at once;
/// what was found is told to them, and ends their calls with the same words. A rank that has begun
/// the call so long ago that it has forgotten its kind is not missing, and is accused of nothing.
class RollCall {
 public:
  RollCall(Wire& wire, const Group& group) : wire_(wire), group_(group) {}

  /// Answers and hears other ranks; to be called now and then while calls are open. Throws
  /// TransportError with the words that another rank tells.
  void listen();

  /// Asks, at the first call for `number`; afterwards returns the words that name the missing ranks
  /// as soon as all ranks have answered and one is missing, or a second is over. `waited_for`: the
  /// ranks whose messages this one lacks.
  std::optional<std::string> ask(uint64_t number, Kind kind, const std::vector<int>& waited_for,
                                 double timeout_s, Time now);

  /// The call `number` has ended: others may be asked for.
  void over(uint64_t number) noexcept;

  /// Ends the group on the ranks that are in a call; of long words they hear the first 1000 bytes.
  void tell(const std::string& words) noexcept;

 private:
  struct Question {
    uint64_t number;
  };
  struct Answer {
    uint64_t number;  // that was asked for
    uint64_t begun;   // calls that the rank has begun
    uint8_t kind;     // of the call of that number; kUnknown: not begun, or long past
  };

  static constexpr uint8_t kUnknown = 0xFF;

  Answer answer(uint64_t number) const;
  std::string text_of(const std::vector<int>& ranks) const;
  std::string verdict(Kind kind, const std::vector<int>& waited_for, double timeout_s) const;

  Wire& wire_;
  const Group& group_;
  std::optional<uint64_t> asked_;
  Time answers_until_;
  std::vector<std::optional<Answer>> answers_;
};

}  // namespace gear::process_group
